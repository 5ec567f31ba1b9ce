"""All policies by name. A name is what users choose by `--policy`; each call makes a fresh policy.

An ablation is another choice of parts, not a switch inside one.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from tao.core.ports import Policy
from tao.policies.baselines import BASELINES
from tao.policies.credit import Credit, HalfLifeCredit, NoCredit
from tao.policies.errors import UnknownPolicyError, UnusablePolicyError
from tao.policies.interruption import (
    InterruptOrder,
    LeaseWhileExpected,
    LeastValueFirst,
    LongestAwayFirst,
    NoLease,
    SmallestFirst,
)
from tao.policies.joint import JointPolicy, Parts
from tao.policies.own import load_policy
from tao.policies.pacing import EveryPeriod, OnChange
from tao.policies.readiness import NoReadiness, Readiness, ToolReadiness
from tao.policies.reserve import CappedReserve
from tao.policies.returns import EmpiricalBernstein, make_predictor
from tao.policies.room import AdmissionRoom, GrowthRoom, WholeCapacity
from tao.policies.stale import DropChanged, DropPlan
from tao.policies.survival import MeasuredSurvival, SurvivalCredit

AGED_SECONDS = 60.0
"""`tao` lets sessions that waited so long go first; far below the bound at which the core places by force."""


def tao_paper() -> Policy:
    """The method to the letter: one decision a second, a changed session voids the plan."""
    credit, readiness = HalfLifeCredit(), ToolReadiness(EmpiricalBernstein())
    order = LeastValueFirst(credit, readiness)
    return JointPolicy(
        "tao-paper",
        Parts(credit, readiness, order, NoLease(), WholeCapacity(), EveryPeriod(), DropPlan(), "dp"),
    )


def tao() -> Policy:
    """The method, planning at once when the answer may have changed, keeping what still holds of a late plan, giving up on
    sessions that nobody expects back, and leaving room for those admitted to grow.
    """
    return _tao("tao", HalfLifeCredit(), ToolReadiness(make_predictor()))


def tao_survival() -> Policy:
    """`tao` with credit by measured survival in place of the fixed half-life."""
    survival = MeasuredSurvival()
    credit, readiness = SurvivalCredit(survival), ToolReadiness(make_predictor())
    return _tao("tao-survival", credit, readiness, survival=survival)


def tao_no_credit() -> Policy:
    """`tao` without the first coordinate."""
    return _tao("tao-no-credit", NoCredit(), ToolReadiness(make_predictor()))


def tao_no_readiness() -> Policy:
    """`tao` without the second coordinate."""
    return _tao("tao-no-readiness", HalfLifeCredit(), NoReadiness())


def tao_footprint_only() -> Policy:
    """`tao` with the third coordinate alone."""
    return _tao("tao-footprint-only", NoCredit(), NoReadiness())


def tao_smallest_interrupted_first() -> Policy:
    """`tao` with ThunderAgent's interrupt order."""
    return _tao(
        "tao-smallest-interrupted-first",
        HalfLifeCredit(),
        ToolReadiness(make_predictor()),
        order=SmallestFirst(),
    )


def tao_dp() -> Policy:
    """`tao` with the paper's quantised dynamic programme in place of the exact decision."""
    return _tao("tao-dp", HalfLifeCredit(), ToolReadiness(make_predictor()), solver="dp")


def tao_bfd() -> Policy:
    """`tao` with best-fit-decreasing in place of the joint decision."""
    return _tao("tao-bfd", HalfLifeCredit(), ToolReadiness(make_predictor()), solver="bfd")


def tao_no_room() -> Policy:
    """`tao` filling replicas to the brim."""
    return _tao("tao-no-room", HalfLifeCredit(), ToolReadiness(make_predictor()), room=WholeCapacity())


def tao_no_sharing() -> Policy:
    """`tao` booking each session whole, whatever it shares with others."""
    return _tao("tao-no-sharing", HalfLifeCredit(), ToolReadiness(make_predictor()), books_shared_once=False)


def _tao(
    name: str,
    credit: Credit,
    readiness: Readiness,
    *,
    order: InterruptOrder | None = None,
    room: AdmissionRoom | None = None,
    solver: str = "auto",
    survival: MeasuredSurvival | None = None,
    books_shared_once: bool = True,
) -> Policy:
    order = order or LongestAwayFirst(credit, readiness)
    lease = LeaseWhileExpected(readiness)
    room, survival = room or GrowthRoom(), survival or MeasuredSurvival()
    parts = Parts(
        credit,
        readiness,
        order,
        lease,
        room,
        OnChange(),
        DropChanged(),
        solver,
        AGED_SECONDS,
        survival,
        books_shared_once,
        CappedReserve(),
    )
    return JointPolicy(name, parts)


POLICIES: Mapping[str, Callable[[], Policy]] = {
    "tao": tao,
    "tao-paper": tao_paper,
    "tao-survival": tao_survival,
    "tao-no-credit": tao_no_credit,
    "tao-no-readiness": tao_no_readiness,
    "tao-footprint-only": tao_footprint_only,
    "tao-smallest-interrupted-first": tao_smallest_interrupted_first,
    "tao-no-room": tao_no_room,
    "tao-no-sharing": tao_no_sharing,
    "tao-dp": tao_dp,
    "tao-bfd": tao_bfd,
    **BASELINES,
}


def make_policy(name: str) -> Policy:
    """A fresh policy: by its name in the catalogue, or the user's own as `package.module:Class`.

    `UnknownPolicyError` where there is none of that name, `UnusablePolicyError` where the user's own cannot be used.
    """
    if ":" in name:
        policy = load_policy(name)
        if policy.name in POLICIES:
            raise UnusablePolicyError(
                f"{name} calls itself {policy.name!r}, which is the name of another policy"
            )
        return policy
    maker = POLICIES.get(name)
    if maker is None:
        near = get_close_matches(name, POLICIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownPolicyError(
            f"no policy is named {name!r}{hint} Known: {', '.join(POLICIES)}, or your own as package.module:Class"
        )
    return maker()
