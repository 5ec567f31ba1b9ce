"""The joint decision: items into knapsacks, with a certificate. Integers in, assignment out.

Public: build a `Problem`, call `solve` (or `await PlanWorker.solve` off the event loop), read the `Answer`; `verify`
checks any assignment. Nothing here knows sessions, replicas or engines.
"""

from tao.planning.ageing import hold_back
from tao.planning.answer import Ageing, Answer, Status
from tao.planning.problem import Item, Knapsack, Problem, ProblemError, SparseValues, Triple
from tao.planning.snapshot import SnapshotError, answer_fields, read_snapshot, write_snapshot
from tao.planning.solver import Solver, WorkLimit
from tao.planning.solvers import SOLVERS, UnknownSolverError, is_small, solve
from tao.planning.verification import InfeasibleError, verify
from tao.planning.worker import (
    PlanCrashError,
    PlanFailedError,
    PlanTimeoutError,
    PlanWorker,
    PlanWorkerBusyError,
    PlanWorkerClosedError,
    PlanWorkerError,
    WorkerStats,
)

__all__ = [
    "SOLVERS",
    "Ageing",
    "Answer",
    "InfeasibleError",
    "Item",
    "Knapsack",
    "PlanCrashError",
    "PlanFailedError",
    "PlanTimeoutError",
    "PlanWorker",
    "PlanWorkerBusyError",
    "PlanWorkerClosedError",
    "PlanWorkerError",
    "Problem",
    "ProblemError",
    "SnapshotError",
    "Solver",
    "SparseValues",
    "Status",
    "Triple",
    "UnknownSolverError",
    "WorkLimit",
    "WorkerStats",
    "answer_fields",
    "hold_back",
    "is_small",
    "read_snapshot",
    "solve",
    "verify",
    "write_snapshot",
]
