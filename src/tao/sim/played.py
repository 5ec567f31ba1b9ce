"""One recorded session while it is being played: its next prompt, its tools, how long it is away, whom it waits for.

It knows nothing of schedulers and replicas, nor when its turns end; it is told.
"""

from tao.core.events import PrefixNode, ToolCall
from tao.core.ids import SessionId
from tao.enginemodel import Request
from tao.sim.conversation import Conversation, beginning_of, system_segment
from tao.traces.model import TraceSession, TraceTool


class PlayedSession:
    """`turn` is the recorded turn to be played next, or the one in play, and `next_turn` its number. `tool_ended_at`: when
    its tool ended, if one did.

    `is_child`: started by a turn of another session, so that no worker holds it; `awaited_by`: the session whose tool
    lasts until this one has ended, if one's does. `children_left`: how many the session itself waits for.
    `shared_prefix`: how its prompt begins, as those of other sessions may.
    `starts_afresh`: the prompt of the turn in play is a new prefix after an earlier one (compaction).
    """

    __slots__ = (
        "_conversation",
        "_human_wait_seconds_max",
        "_tool_delay_seconds",
        "awaited_by",
        "children_left",
        "id",
        "is_child",
        "next_turn",
        "shared_prefix",
        "starts_afresh",
        "tool_ended_at",
        "trace",
        "turn",
    )

    def __init__(
        self,
        id: SessionId,  # noqa: A002 - the word of the vocabulary
        trace: TraceSession,
        *,
        is_child: bool = False,
        awaited_by: "PlayedSession | None" = None,
        system_tokens: int = 0,
        tool_delay_seconds: float = 0.0,
        human_wait_seconds_max: float = 30.0,
    ) -> None:
        self.id = id
        self.trace = trace
        self.is_child = is_child
        self.awaited_by = awaited_by
        self.next_turn = 0
        self.turn = trace.turns[0]
        self.tool_ended_at: float | None = None
        self.children_left = 0
        self.starts_afresh = False
        self.shared_prefix: tuple[PrefixNode, ...] = ()
        system = system_segment(trace, system_tokens)
        self._conversation = Conversation(trace.session_id, system, trace.prompt_group)
        self._tool_delay_seconds = tool_delay_seconds
        self._human_wait_seconds_max = human_wait_seconds_max

    def advance(self) -> None:
        """The next turn is to be played."""
        self.next_turn += 1
        self.turn = self.trace.turns[self.next_turn]

    @property
    def runs_tool(self) -> bool:
        """Whether the turn in play ends with a tool, not with a question to a human."""
        tool = self.turn.tool
        return tool is not None and not tool.is_human

    @property
    def is_last(self) -> bool:
        """Whether the turn in play is the session's last."""
        return self.next_turn + 1 == len(self.trace.turns)

    def request(self, request_id: str) -> Request:
        """The turn as a request to an engine. Call once for each turn."""
        turn = self.turn
        new_prefix = self.trace.starts_new_prefix(self.next_turn)
        self.starts_afresh = new_prefix and self.next_turn > 0
        prompt = self._conversation.extend(turn.prompt_tokens, new_prefix=new_prefix)
        if new_prefix:
            self.shared_prefix = beginning_of(prompt)
        return Request(request_id, prompt, max(1, turn.output_tokens))

    def answered(self, request: Request) -> None:
        """The turn's answer becomes part of the conversation."""
        self._conversation.answered(request)

    def tools(self) -> tuple[ToolCall, ...]:
        """The tools that the turn asks for, as a gateway would see them."""
        turn = self.turn
        if turn.tool is None or turn.tool.is_human:
            return ()
        return tuple(map(_tool_call, turn.tools)) if turn.tools else (_tool_call(turn.tool),)

    def waits_for_children(self) -> bool:
        """Whether sub-agents that the turn starts are what its tool waits for."""
        tool = self.turn.tool
        return tool is not None and not tool.background and not self.is_last

    def tool_seconds(self) -> float:
        """How long the turn's tool takes, the session's own delay included; 0 without a tool."""
        tool = self.turn.tool
        if tool is None or tool.is_human:
            return 0.0
        return tool.duration_seconds + self._tool_delay_seconds

    def human_seconds(self) -> float:
        """How long a human lets the session wait after the turn, capped."""
        return min(self._human_wait_seconds_max, self.turn.human_seconds)


def _tool_call(tool: TraceTool) -> ToolCall:
    return ToolCall(
        tool.name, tool.command_head or "", tool.sleep_seconds, tool.declared_timeout_seconds, tool.background
    )
