"""Credit by the clock against credit by measured survival: how well each foretells the cache, and what that is worth.

`python benchmarks/survival.py [--trace FILE] [--sessions N] [--workers 96,128]` simulates `tao` and `tao-survival` and
prints, of each run, session latency and hit rate, and of each way to expect its calibration error over the same returns.
Figures go to benchmarks/results/survival.json. Everything is virtual time, so the machine's load does not matter.
"""

import argparse
import json
from pathlib import Path

from tao.core import Scheduler
from tao.core.ids import ReplicaId
from tao.enginemodel import EngineModel, load_profile
from tao.policies import make_policy
from tao.policies.joint import JointPolicy
from tao.record.summary import summarise
from tao.sim.simulation import Simulation
from tao.sim.workload import ClosedLoop, Workload, WorkloadSettings
from tao.traces import read_trace, sample_path, select_sessions

RESULTS = Path(__file__).parent / "results" / "survival.json"
PROFILE = "qwen3-32b-tp2-h100"
POLICIES = ("tao", "tao-survival")


def simulated(policy_name: str, trace: Path, sessions: int, workers: int, replicas: int) -> dict[str, object]:
    """One run: its figures, and the calibration of both ways to expect on its returns."""
    policy = make_policy(policy_name)
    assert isinstance(policy, JointPolicy)
    judged = policy.survival.judged()
    profile = load_profile(PROFILE)
    chosen = select_sessions(
        read_trace(trace), count_max=sessions, seed=None, prompt_tokens_max=profile.max_model_tokens
    )
    engines = {ReplicaId(f"replica-{n}"): EngineModel(profile) for n in range(replicas)}
    workload = Workload(chosen.sessions, ClosedLoop(workers), WorkloadSettings())
    summary = summarise(Simulation(Scheduler(policy), engines, workload).run(), workers=workers)
    return {
        "policy": policy_name,
        "workers": workers,
        "sessions": summary.sessions,
        "mean_latency_seconds": summary.latency_seconds.mean,
        "prefix_hit_rate": summary.prefix_hit_rate,
        "calibration": judged.shown(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, default=sample_path())
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--workers", default="96,128")
    parser.add_argument("--replicas", type=int, default=4)
    given = parser.parse_args()
    rows = []
    for workers in map(int, given.workers.split(",")):
        for name in POLICIES:
            row = simulated(name, given.trace, given.sessions, workers, given.replicas)
            rows.append(row)
            calibration = row["calibration"]
            assert isinstance(calibration, dict)
            told = ", ".join(
                f"{way}: calibration error {known['calibration_error']:.3f}, mean error {known['mean_error']:.3f}, "
                f"squared {known['mean_squared_error']:.3f}"
                for way, known in calibration.items()
            )
            print(
                f"W={workers} {name}: latency {row['mean_latency_seconds']:.1f} s, hits {row['prefix_hit_rate']:.3f}; {told}"
            )
    document = {"trace": given.trace.name, "profile": PROFILE, "replicas": given.replicas, "runs": rows}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
