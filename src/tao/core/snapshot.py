"""The state as JSON-ready data: what `/state` shows and `/explain` tells.

Reads only. It shows what there is and words why; it must not compute anything that a decision could depend on.
"""

from tao.core.admission import needed_tokens
from tao.core.context import Context
from tao.core.events import ToolCall
from tao.core.ids import SessionId
from tao.core.phases import Acting, Away, Phase, Running, Stopping, Waiting
from tao.core.session import Replica, Session


def snapshot(ctx: Context, at: float | None = None) -> dict[str, object]:
    """Replicas, sessions and counters at this moment. Side turns are shown under their session."""
    state = ctx.state
    now = _now(ctx, at)
    return {
        "at": now,
        "policy": ctx.policy.name,
        "shutting_down": ctx.shutting_down,
        "planning": state.planning,
        "weights_update_ends_in_seconds": None if state.weights_until is None else state.weights_until - now,
        "plans": ctx.plans_made,
        "held_turns": state.held_turns,
        "waiting_sessions": state.waiting_sessions,
        "pool_sessions": len(state.pool),
        "replicas": [_replica(ctx, replica) for replica in state.replicas.values()],
        "sessions": [_session(ctx, s, now) for s in state.sessions.values() if s.side_of is None],
        "side_turns": [
            {"session": s.side_of, **_phase(s.phase)}
            for s in state.sessions.values()
            if s.side_of is not None
        ],
        "ignored": dict(sorted(ctx.ignored.items())),
    }


def explain(ctx: Context, session_id: SessionId, at: float | None = None) -> dict[str, object] | None:
    """One session with the values that decide its place; None where it is not known."""
    session = ctx.state.sessions.get(session_id)
    if session is None:
        return None
    now = _now(ctx, at)
    known = _session(ctx, session, now)
    told: dict[str, object] = {"id": session.id, "phase": known["phase"], "why": _why(ctx, session)} | known
    urgency = session.urgency
    told["urgency"] = urgency and {
        "priority": urgency.priority,
        "deadline_in_seconds": None if urgency.deadline_at is None else urgency.deadline_at - now,
        "output_tokens": urgency.output_tokens,
    }
    told["tool_evidence"] = _tool_evidence(session, now)
    told["values"] = dict(ctx.policy.explain(ctx.state, session, now))
    return told


def _now(ctx: Context, at: float | None) -> float:
    return ctx.now if at is None else max(ctx.now, at)


def _replica(ctx: Context, replica: Replica) -> dict[str, object]:
    return {
        "id": replica.id,
        "state": replica.state.value,
        "models": None if replica.models is None else list(replica.models),
        "capacity_tokens": replica.capacity_tokens,
        "reserved_tokens": ctx.state.ledger.reserved_tokens(replica.id),
        "free_tokens": ctx.state.free_tokens(replica.id),
        "slots": replica.slots,
        "free_slots": ctx.state.free_slots(replica.id),
        "sessions": ctx.state.session_count_on(replica.id),
        "turns_in_flight": replica.turns_in_flight,
        "cache_rate": round(replica.cache_rate, 4),
    }


def _session(ctx: Context, session: Session, now: float) -> dict[str, object]:
    placed = session.placement
    return {
        "id": session.id,
        "tenant": session.tenant,
        "parent": session.parent,
        "model": session.model,
        **_phase(session.phase),
        "home": session.home,
        "footprint_tokens": session.live_tokens,
        "turns_finished": session.turns_finished,
        "interrupts": session.interrupts,
        "pinned": session.pinned,
        "waited_seconds": ctx.state.waited_seconds(session, now),
        "evidence": {
            replica: {
                "tokens": seen.tokens,
                "age_seconds": seen.age_seconds(now),
                "source": seen.source.value,
            }
            for replica, seen in session.evidence.items()
        },
        "last_placement": placed
        and {"at": placed.at, "replica": placed.replica, "reason": placed.reason.value},
    }


def _phase(phase: Phase) -> dict[str, object]:
    told: dict[str, object] = {"phase": type(phase).__name__.lower()}
    match phase:
        case Waiting(turns=turns) | Running(turns=turns) | Stopping(turns=turns):
            told["turns"] = list(turns)
        case Acting():
            told["tools"] = [tool.name for tool in phase.tools]
            told["acting_since"] = phase.since
            told["tool_finished"] = phase.finished_at is not None
    return told


def _tool_evidence(session: Session, now: float) -> list[dict[str, object]]:
    """What is known of the session's running tools: each piece with its source and its time, strongest first."""
    phase = session.phase
    if not isinstance(phase, Acting):
        return []
    told: list[dict[str, object]] = []
    if phase.finished_at is not None:
        told.append(_evidence("completion observed", phase.finished_at, now))
    if phase.told_at is not None and phase.expected_at is not None:
        promise = _evidence("promised by the tool interface", phase.told_at, now)
        told.append({**promise, "returns_in_seconds": phase.expected_at - now})
    if session.children:
        children = {child: "works" if works else "ended" for child, works in session.children.items()}
        told.append({**_evidence("sub-agents", phase.since, now), "children": children})
    tools = [
        {"name": tool.name, "command_head": tool.command_head, **_declared(tool)} for tool in phase.tools
    ]
    asked = "the response asked for it" if tools else "the response asked for no tool"
    told.append({**_evidence(asked, phase.since, now), "tools": tools})
    return told


def _evidence(source: str, at: float, now: float) -> dict[str, object]:
    return {"source": source, "at": at, "age_seconds": now - at}


def _declared(tool: ToolCall) -> dict[str, object]:
    """What the call itself says of its duration."""
    said = {
        "sleep_seconds": tool.sleep_seconds,
        "timeout_seconds": tool.timeout_seconds,
        "background": tool.background or None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _why(ctx: Context, session: Session) -> str:
    match session.phase:
        case Running(replica=replica):
            placed = session.placement
            return f"runs on {replica}" + (f" (placed there: {placed.reason.value})" if placed else "")
        case Stopping(replica=replica):
            return f"was asked to stop on {replica}; the engine has not confirmed yet"
        case Away():
            return "nobody knows whether it comes back: it holds nothing until it does"
        case Acting(home=None) as phase:
            return f"{_doing(phase)} and it holds no admission: it is a candidate of the next plan"
        case Acting(home=home) as phase:
            return f"{_doing(phase)}; it keeps its admission on {home}"
    return _why_waiting(ctx, session)


def _doing(phase: Acting) -> str:
    if phase.finished_at is not None:
        return "its tool has ended, its next turn is not here yet"
    return "its tool runs" if phase.tools else "its last answer asked for no tool"


def _why_waiting(ctx: Context, session: Session) -> str:
    state = ctx.state
    if state.weights_until is not None:
        told = f"waits while weights are updated, {state.weights_until - ctx.now:g} s more at most"
        returns_to = session.phase.returns_to if isinstance(session.phase, Waiting) else None
        return told if returns_to is None else f"{told}; then it has its admission on {returns_to} again"
    if not state.up_replicas():
        return "waits because no replica is up"
    if not state.eligible_replicas(session):
        return f"waits because no replica that serves {session.model!r} is up"
    weight_tokens = needed_tokens(ctx, session)
    free_slots = [state.free_slots(replica.id) for replica in state.eligible_replicas(session)]
    most = max(state.free_tokens(replica.id) for replica in state.eligible_replicas(session))
    bound = f"placed by force after {ctx.settings.hold_seconds_max:g} s"
    if weight_tokens > most:
        return f"waits: needs {weight_tokens} tokens, the roomiest replica has {max(most, 0)} free; {bound}"
    if all(slots is not None and slots <= 0 for slots in free_slots):
        return f"waits: the {weight_tokens} tokens that it needs are free, but all slots are taken; {bound}"
    return f"waits for the next plan: needs {weight_tokens} tokens, {most} are free; {bound}"
