"""The prompts of one session as chains of content runs: the recorded lengths, each extending the one before.

The same rules as those of the live load client, without text: a shared system prompt, a task, then answer and tool
result by turns; a new prefix (compaction) starts again after the system prompt; a prompt recorded shorter than what was
already said still extends it by a little. Sessions of one group begin with one task. It must not know time, tools, or other
sessions.
"""

from tao.core.events import PrefixNode
from tao.enginemodel import Chain, Request, Segment
from tao.traces.model import TraceSession

SYSTEM, TASK = "system", "task"
"""What a segment that several sessions share is; what follows is the name of a source or of a group, not a number."""

SHARED_SHARE_MAX = 0.9
"""Most of a first prompt that can be a shared system prompt."""


class Conversation:
    """Call `extend` for each turn's prompt and `answered` with what the turn generated."""

    __slots__ = ("_chain", "_group", "_name", "_parts", "_system")

    def __init__(self, name: str, system: Segment | None, group: str | None = None) -> None:
        """`group`: the sessions that begin with one first prompt; None: this one is alone with its own."""
        self._name = name
        self._system = system
        self._group = group
        self._chain: Chain | None = None
        self._parts = 0

    def extend(self, prompt_tokens: int, *, new_prefix: bool) -> Chain:
        """The prompt of the next turn, about `prompt_tokens` long."""
        self._parts += 1
        key = (self._name, self._parts) if self._parts > 1 or self._group is None else (TASK, self._group)
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
    """The prompt that the sessions of one source share: as long as recorded, else `default_tokens`; None for none.

    A first prompt too short for it begins with as much of it as there is room for. Recorded prompts of different lengths are
    different prompts.
    """
    recorded = trace.shared_prefix_tokens
    tokens = default_tokens if recorded is None else recorded
    tokens = min(tokens, int(trace.turns[0].prompt_tokens * SHARED_SHARE_MAX))
    return ((SYSTEM, trace.source or trace.agent, recorded), tokens) if tokens > 0 else None


def beginning_of(prompt: Chain) -> tuple[PrefixNode, ...]:
    """How a prompt that begins afresh begins as others may: its system prompt, and a first prompt that a group shares.

    The same task after another system prompt is another beginning, as it is in a cache.
    """
    nodes: list[PrefixNode] = []
    before = ""
    for key, _, length in prompt.slices(0, prompt.tokens):
        if not (isinstance(key, tuple) and key[0] in {SYSTEM, TASK} and isinstance(key[1], str)):
            break
        before += f"{':'.join(map(str, key))}:{length}/"
        nodes.append(PrefixNode(before, length))
    return tuple(nodes)
