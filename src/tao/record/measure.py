"""What was measured of each turn: the record that live, replayed and simulated runs all fill in.

All times are model seconds on one clock of the run (its origin does not matter). `tao.record.summary` folds a
list of these into the figures of a report. This file must not know HTTP, a clock, or who measured.
"""

from tao.values import value


@value
class TurnMeasurement:
    """One turn, from the moment the agent wanted it to the last byte of its answer.

    `arrived_at` is when the request was first sent: holds, retries and queueing come after it. `hold_seconds`
    is None where nobody told. A turn that failed for good has `error` (its kind) and possibly no first token;
    one that succeeded after retries has no error; `retried` has the kinds of the attempts before the last.
    `tool_ended_at` is None for a first turn and after a human wait. Token counts are what the engine
    reported; None = not reported.
    """

    session_id: str
    turn_index: int
    arrived_at: float
    finished_at: float
    first_token_at: float | None = None
    hold_seconds: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tool_ended_at: float | None = None
    error: str | None = None
    retried: tuple[str, ...] = ()
    parent_session_id: str | None = None

    def __post_init__(self) -> None:
        first = self.arrived_at if self.first_token_at is None else self.first_token_at
        if not self.arrived_at <= first <= self.finished_at:
            raise ValueError(
                f"turn {self.turn_index} of session {self.session_id!r}: times must not decrease: arrived "
                f"{self.arrived_at}, first token {self.first_token_at}, finished {self.finished_at}"
            )
