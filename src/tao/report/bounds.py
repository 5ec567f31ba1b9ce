"""The floor with unlimited memory, and how much of the way from the best published scheduler to it a policy goes.

The floor is a reference, not a proof: the same load on replicas that never run out of KV cache, each session staying
where it began. Pure: results in, numbers out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tao.sim.run import RunResult

REFERENCES = ("thunderagent", "thunderagent-halflife")
"""ThunderAgent as published and its best port: the better of the two is what others are measured against."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The floor of one load, and the mean latency of the better reference where one was run."""

    result: RunResult
    reference_seconds: float | None

    @property
    def seconds(self) -> float | None:
        """Mean session latency with unlimited memory."""
        return self.result.summary.latency_seconds.mean

    def recovered_share(self, run: RunResult) -> float | None:
        """1 at the floor, 0 at the reference, below 0 when worse; None without a reference or any distance."""
        return recovered_share(run.summary.latency_seconds.mean, self.reference_seconds, self.seconds)

    def to_json_dict(self) -> dict[str, object]:
        """The floor's own row, with the reference."""
        return {**self.result.to_json_dict(), "reference_latency_seconds": self.reference_seconds}


def recovered_share(value: float | None, reference: float | None, floor: float | None) -> float | None:
    """How much of the distance from the reference to the floor a value goes; all in seconds, less is better."""
    if value is None or reference is None or floor is None or reference <= floor:
        return None
    return (reference - value) / (reference - floor)


def floors_of(runs: Sequence[RunResult], floors: Sequence[RunResult]) -> list[Floor]:
    """Each floor with the better reference among the runs of the same load."""
    found: list[Floor] = []
    for floor in floors:
        references = [
            run.summary.latency_seconds.mean
            for run in runs
            if run.spec.policy in REFERENCES and run.spec.arrivals == floor.spec.arrivals
        ]
        found.append(Floor(floor, min((mean for mean in references if mean is not None), default=None)))
    return found
