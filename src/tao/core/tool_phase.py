"""What is learned of a session's tools while they run: begun, promised, measured, ended, by the client or by a sub-agent.

A tool phase begins when the last turn in flight ends and is over when the session is back or its tools were seen to end.
A sub-agent is a session of its own with a parent; one that works while its parent's tools run is what they wait for, and
its end is theirs. It has ended when it is closed, when a turn of it failed, or when it answered without asking for a tool.
"""

from dataclasses import replace

from tao.core.context import Context
from tao.core.events import ToolBegan, ToolCall, ToolExpected, ToolFinished, ToolsMeasured
from tao.core.facts import ChildStarted, ToolEnded, ToolMeasured, ToolsNamed, ToolStarted
from tao.core.phases import Acting, Away, Phase
from tao.core.session import Session
from tao.core.transitions import ChildrenEnded, Stimulus, check_row

CHILDREN_MAX = 256
"""More sub-agents of one tool phase are not followed; their parent then waits for its next turn."""

TOOLS_MAX = 64
"""More tools of one phase than these are not remembered."""


def tool_finished(ctx: Context, event: ToolFinished) -> None:
    """Completion observed: the session will be back at once."""
    session = ctx.state.sessions[event.session]
    if not _finish(ctx, session, ToolFinished):
        ctx.ignore(event)


def tool_expected(ctx: Context, event: ToolExpected) -> None:
    """The tool interface promises a return."""
    session = ctx.state.sessions[event.session]
    before = session.phase
    acting = _acting_again(before)
    if acting is None:
        ctx.ignore(event)
        return
    ctx.state.enter(session, replace(acting, expected_at=event.return_at, told_at=ctx.now), ctx.now)
    ctx.state.heard_of(session, ctx.now)
    check_row(before, ToolExpected, session.phase)


def tool_began(ctx: Context, event: ToolBegan) -> None:
    """A tool that no response named: added to those that run, or, where all had ended, the first of a new phase."""
    session = ctx.state.sessions[event.session]
    before = session.phase
    acting = _acting_again(before)
    if acting is None or len(acting.tools) >= TOOLS_MAX:
        ctx.ignore(event)
        return
    if acting.finished_at is None:
        tools = (*acting.tools, event.tool)
        ctx.state.enter(session, replace(acting, tools=tools), ctx.now)
        ctx.tell(ToolsNamed(ctx.now, session.id, session.tenant, tools))
    else:
        ctx.state.enter(session, Acting((event.tool,), ctx.now, acting.home), ctx.now)
        ctx.tell(ToolStarted(ctx.now, session.id, session.tenant, (event.tool,)))
    ctx.state.heard_of(session, ctx.now)
    check_row(before, ToolBegan, session.phase)


def tools_measured(ctx: Context, event: ToolsMeasured) -> None:
    """Tell how long each of several parallel tools took; the phase as a whole is told when the session is back."""
    session = ctx.state.sessions[event.session]
    tools = session.phase.tools if isinstance(session.phase, Acting | Away) else ()
    if len(tools) < 2:
        return
    for name, seconds in event.durations:
        tool = _tool_named(tools, name)
        if tool is not None:
            ctx.tell(ToolMeasured(ctx.now, session.id, session.tenant, tool, seconds))


def child_arrived(ctx: Context, child: Session) -> None:
    """A sub-agent works: where its parent's tools run, they wait for it."""
    parent = ctx.state.sessions.get(child.parent) if child.parent is not None else None
    if parent is None or parent is child or child.side_of is not None:
        return
    acting = _acting_again(parent.phase)
    if acting is None or acting.finished_at is not None:
        return
    ctx.state.heard_of(parent, ctx.now)
    if child.id not in parent.children:
        if len(parent.children) >= CHILDREN_MAX:
            return
        ctx.tell(ChildStarted(ctx.now, parent.id, child.id))
    parent.children[child.id] = True


def child_ended(ctx: Context, child: Session) -> None:
    """A sub-agent has answered or is gone. The parent's tools are over with the last one, if there is one for each tool."""
    parent = ctx.state.sessions.get(child.parent) if child.parent is not None else None
    if parent is None or not parent.children.get(child.id, False):
        return
    parent.children[child.id] = False
    acting = _acting_again(parent.phase)
    if acting is not None and not parent.awaits_children and len(parent.children) >= len(acting.tools):
        _finish(ctx, parent, ChildrenEnded)


def _finish(ctx: Context, session: Session, stimulus: Stimulus) -> bool:
    """The tools of the session are over; False where none ran."""
    before = session.phase
    acting = _acting_again(before)
    if acting is None or acting.finished_at is not None:
        return False
    ctx.state.enter(session, replace(acting, finished_at=ctx.now, expected_at=None, told_at=None), ctx.now)
    ctx.state.heard_of(session, ctx.now)
    ctx.tell(ToolEnded(ctx.now, session.id, session.tenant, acting.tools, ctx.now - acting.since))
    check_row(before, stimulus, session.phase)
    return True


def _acting_again(phase: Phase) -> Acting | None:
    """The phase in which a tool runs; a session that was given up on is a candidate again once its tool is heard of."""
    match phase:
        case Acting():
            return phase
        case Away(acting_since=float(since), tools=tools):
            return Acting(tools, since, None)
    return None


def _tool_named(tools: tuple[ToolCall, ...], name: str) -> ToolCall | None:
    """The tool that was measured; only its name where several calls of that name differ."""
    named = [tool for tool in tools if tool.name == name]
    if not named:
        return None
    return named[0] if all(tool == named[0] for tool in named) else ToolCall(name)
