"""What every handler of the core works with: the state, the policy, the settings, the present moment, and the list of
commands being made. One `Context` lives as long as its `Scheduler`.
"""

from tao.core.commands import Command
from tao.core.facts import Fact
from tao.core.ids import PlanId, SessionId
from tao.core.ports import Policy
from tao.core.settings import SchedulerSettings
from tao.core.state import State


class Outstanding:
    """The plan that is being computed: who takes part, by epoch, and since when."""

    __slots__ = ("epochs", "id", "since")

    def __init__(self, plan: PlanId, epochs: dict[SessionId, int], since: float) -> None:
        self.id = plan
        self.epochs = epochs
        self.since = since


class Context:
    """`now` never goes back: an event with an earlier time is handled as of the latest one."""

    def __init__(self, policy: Policy, settings: SchedulerSettings) -> None:
        self.policy = policy
        self.settings = settings
        self.state = State(settings)
        self.now = 0.0
        self.shutting_down = False
        self.outstanding: Outstanding | None = None
        self.plans_made = 0
        self.ignored: dict[str, int] = {}
        self._commands: list[Command] = []

    def emit(self, command: Command) -> None:
        """Add a command to the answer of the event being handled."""
        self._commands.append(command)

    def take_commands(self) -> list[Command]:
        """Hand over the commands made since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def tell(self, fact: Fact) -> None:
        """Let the policy learn."""
        self.policy.observe(self.state, fact)

    def ignore(self, event: object) -> None:
        """Count an event that has no meaning in the present phase: late, duplicate or unknown."""
        name = type(event).__name__
        self.ignored[name] = self.ignored.get(name, 0) + 1
