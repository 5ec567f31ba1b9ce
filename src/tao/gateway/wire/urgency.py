"""What clients say of the urgency of a request: priority, deadline and expected length, in the forms in use.

Dynamo has `nvext.agent_hints` (`priority`, `osl`), vLLM's program scheduling `vllm_xargs.agentic_context` (`priority`,
`deadline_seconds`, `expected_output_length`); in both a larger priority is served sooner. Nobody has to believe any of it.
A `priority` at the top of a body is left alone: vLLM and SGLang read it in opposite ways. It must not know sessions.
"""

from tao.core.events import Urgency
from tao.gateway.clock import ModelClock
from tao.gateway.wire import lenient
from tao.gateway.wire.lenient import JsonObject

PRIORITY_MAX = 1000
DEADLINE_SECONDS_MAX = 86_400.0
OUTPUT_TOKENS_MAX = 1 << 20


def read_urgency(body: JsonObject, clock: ModelClock) -> Urgency | None:
    """What `body` says, within bounds; None where it says nothing. Values of another type count as not said."""
    if "nvext" not in body and "vllm_xargs" not in body:
        return None
    hints = lenient.child(lenient.child(body, "nvext"), "agent_hints")
    context = lenient.child(lenient.child(body, "vllm_xargs"), "agentic_context")
    priority = lenient.number(hints, "priority") or lenient.number(context, "priority") or 0.0
    seconds = lenient.number(context, "deadline_seconds")
    expected = lenient.number(hints, "osl") or lenient.number(context, "expected_output_length")
    deadline_at = None
    if seconds is not None and 0 < seconds <= DEADLINE_SECONDS_MAX:
        deadline_at = clock.now() + seconds * clock.speed
    output_tokens = round(expected) if expected is not None and 0 < expected <= OUTPUT_TOKENS_MAX else None
    urgency = Urgency(round(max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))), deadline_at, output_tokens)
    return None if urgency == Urgency() else urgency
