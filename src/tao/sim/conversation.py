"""The prompts of one session as chains of content runs: the recorded lengths, each extending the one before.

The same rules as those of the live load client, without text: a shared system prompt, a task, then answer and tool
result by turns; a new prefix (compaction) starts again after the system prompt; a prompt recorded shorter than what was
already said still extends it by a little. It must not know time, tools, or other sessions.
"""

from tao.enginemodel import Chain, Request, Segment
from tao.traces.model import TraceSession

SHARED_SHARE_MAX = 0.9
"""Most of a first prompt that can be a shared system prompt."""


class Conversation:
    """Call `extend` for each turn's prompt and `answered` with what the turn generated."""

    __slots__ = ("_chain", "_name", "_parts", "_system")

    def __init__(self, name: str, system: Segment | None) -> None:
        self._name = name
        self._system = system
        self._chain: Chain | None = None
        self._parts = 0

    def extend(self, prompt_tokens: int, *, new_prefix: bool) -> Chain:
        """The prompt of the next turn, about `prompt_tokens` long."""
        self._parts += 1
        key = (self._name, self._parts)
        chain = self._chain
        if new_prefix or chain is None:
            shared = (self._system,) if self._system is not None else ()
            own = max(1, prompt_tokens - sum(tokens for _, tokens in shared))
            chain = Chain.of((*shared, (key, own)))
        else:
            chain = chain.extended(key, max(1, prompt_tokens - chain.tokens))
        self._chain = chain
        return chain

    def answered(self, request: Request) -> None:
        """Take the generated output into the conversation."""
        self._chain = request.conversation()


def system_segment(trace: TraceSession, default_tokens: int) -> Segment | None:
    """The prompt that the sessions of one source share: as long as recorded, else `default_tokens`; None for none."""
    shared = trace.shared_prefix_tokens
    tokens = default_tokens if shared is None else shared
    tokens = min(tokens, int(trace.turns[0].prompt_tokens * SHARED_SHARE_MAX))
    return (("system", trace.source or trace.agent, tokens), tokens) if tokens > 0 else None
