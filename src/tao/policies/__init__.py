"""How sessions are valued, placed, kept and interrupted: TAO and what it is compared with. No I/O.

`catalogue` names every policy; `joint` is the frame of TAO's own, made of the parts in `credit`, `returns`, `readiness`,
`interruption`, `pacing` and `stale`; `baselines` holds what others do.
"""

from tao.policies.catalogue import POLICIES, make_policy
from tao.policies.errors import UnknownPolicyError, UnusablePolicyError
from tao.policies.problem import assignments_of, problem_of

__all__ = [
    "POLICIES",
    "UnknownPolicyError",
    "UnusablePolicyError",
    "assignments_of",
    "make_policy",
    "problem_of",
]
