"""The port of return predictors: what they are asked, what they answer, how they learn.

An answer is a distribution of the duration, counted from the start of the tools. A predictor is deterministic, keeps a
bounded state whatever names it is told, and reads no clock.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tao.core.events import ToolCall

Exporting = Generator[None, None, dict[str, object]]
"""An export in steps; it returns the state."""

HUMAN = "(human)"
"""The class of a wait that no tool explains: the last turn asked for none."""


class LearnedStateError(ValueError):
    """A learned state cannot be taken over; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a session is away: its tools (none: a human is asked), and whose session it is."""

    tools: tuple[ToolCall, ...]
    tenant: str = ""
    session: str = ""


class Forecast(Protocol):
    """The distribution of how long an absence lasts, seconds from its start. Immutable."""

    @property
    def source(self) -> str:
        """The evidence that it rests on, for people."""

    @property
    def conservative_seconds(self) -> float:
        """A duration that is seldom exceeded: who is away much longer is not expected any more."""

    @property
    def exhausted_seconds(self) -> float:
        """From here on the forecast knows nothing more: the session is overdue."""

    def survival(self, elapsed_seconds: float) -> float:
        """The chance, 0 to 1, that the absence lasts longer than this."""

    def quantile(self, level: float) -> float:
        """The duration that is not exceeded with chance `level`, 0 < level < 1."""

    def interval(self, level: float) -> tuple[float, float]:
        """Bounds that hold the duration with chance `level`."""


class ReturnPredictor(Protocol):
    """Predicts how long sessions stay away. `name` is the kebab-case name by which users choose it."""

    @property
    def name(self) -> str: ...

    def learn(self, absence: Absence, duration_seconds: float) -> None:
        """The absence is over and lasted so long."""

    def learn_unfinished(self, absence: Absence, elapsed_seconds: float) -> None:
        """A censored observation: it lasted at least this long, and its end will not be seen."""

    def predict(self, absence: Absence) -> Forecast:
        """How long the absence lasts, from its start."""

    def exporting(self) -> "Exporting":
        """What was learned, as JSON-ready data; sessions are left out, they do not outlive the process.

        In steps well below a millisecond, between which the predictor may go on learning.
        """

    def export_state(self) -> dict[str, object]:
        """The same in one step."""

    def import_state(self, state: Mapping[str, object]) -> None:
        """Take over what `export_state` gave. `LearnedStateError` leaves the predictor as it was."""
