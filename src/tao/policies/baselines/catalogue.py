"""All baselines by name; each call makes a fresh policy. Constants that are not here are defaults of the classes.

A variant is another choice of parts, not a switch inside one.
"""

from collections.abc import Callable, Mapping
from math import inf

from tao.core.ports import Policy
from tao.policies.baselines.aimd import Aimd
from tao.policies.baselines.balancing import LeastLoaded, RoundRobin
from tao.policies.baselines.cache_aware import (
    SessionThenTreeRouter,
    TreeRouter,
    TurnImbalance,
    UsageImbalance,
)
from tao.policies.baselines.dynamo_kv import DynamoKv
from tao.policies.baselines.hashing import ConsistentHash
from tao.policies.baselines.llm_d import WeightedScorers
from tao.policies.baselines.per_turn import PerTurnPolicy
from tao.policies.baselines.progress_ttl import ProgressTtl
from tao.policies.baselines.session_fcfs import SessionFcfs
from tao.policies.baselines.sticky import StickyLeastLoaded
from tao.policies.baselines.thunderagent.idleness import FullWeight, HalvingWeight
from tao.policies.baselines.thunderagent.pausing import MarkAll, MarkEnough
from tao.policies.baselines.thunderagent.policy import Parts, ThunderAgent
from tao.policies.baselines.thunderagent.resuming import (
    AnyReplica,
    OriginFor,
    PresentSizes,
    SizesWhenPaused,
    Targets,
)
from tao.policies.baselines.thunderagent.shadows import (
    NeverReleased,
    PhantomReasoning,
    ReleasedPrograms,
    Shadows,
)


def round_robin() -> Policy:
    """Turn after turn to the next replica."""
    return PerTurnPolicy("round-robin", RoundRobin())


def least_loaded() -> Policy:
    """To the replica with fewest turns in flight."""
    return PerTurnPolicy("least-loaded", LeastLoaded())


def consistent_hash() -> Policy:
    """By the session's place on a ring of 160 virtual nodes per replica."""
    return PerTurnPolicy("consistent-hash", ConsistentHash())


def vllm_cache_aware() -> Policy:
    """vLLM's router, with the defaults of its command line."""
    router = SessionThenTreeRouter(TurnImbalance(turns=64, ratio=1.5), match_rate_min=0.3)
    return PerTurnPolicy("vllm-cache-aware", router)


def sglang_cache_aware() -> Policy:
    """SGLang's model gateway over HTTP, with its defaults."""
    router = TreeRouter((UsageImbalance(), TurnImbalance(turns=32, ratio=1.1)), match_rate_min=0.5)
    return PerTurnPolicy("sglang-cache-aware", router)


def dynamo_kv() -> Policy:
    """Dynamo's KV router without KV events."""
    return PerTurnPolicy("dynamo-kv", DynamoKv())


def llm_d() -> Policy:
    """llm-d's default scorers, 3 : 2 : 2."""
    return PerTurnPolicy("llm-d", WeightedScorers())


def sticky_least_loaded() -> Policy:
    """A session stays where it began."""
    return PerTurnPolicy("sticky-least-loaded", StickyLeastLoaded())


def thunderagent() -> Policy:
    """ThunderAgent as its authors would have it run: decay on, programs released, a tick of 5 s, its defects mended."""
    return _thunderagent("thunderagent", AnyReplica(), ReleasedPrograms())


def thunderagent_no_release() -> Policy:
    """The same in front of clients that never release a program."""
    return _thunderagent("thunderagent-no-release", AnyReplica(), NeverReleased())


def thunderagent_origin() -> Policy:
    """The same; a paused program comes back only where it was."""
    return _thunderagent("thunderagent-origin", OriginFor(inf), ReleasedPrograms())


def thunderagent_origin_wait() -> Policy:
    """The same; a paused program waits for the replica where it was, but at most 8 s."""
    return _thunderagent("thunderagent-origin-wait", OriginFor(8.0), ReleasedPrograms())


def thunderagent_halflife() -> Policy:
    """The best published setting of its llm-d port: half-life 10 s, a sweep every second."""
    idle_weight = HalvingWeight(half_life_seconds=10.0)
    parts = Parts(1.0, idle_weight, MarkEnough(), AnyReplica(), PresentSizes(), ReleasedPrograms())
    return ThunderAgent("thunderagent-halflife", parts)


def thunderagent_faithful() -> Policy:
    """The code as it is: decay off, every running program marked, stale sizes, phantoms after failures."""
    parts = Parts(5.0, FullWeight(), MarkAll(), AnyReplica(), SizesWhenPaused(), PhantomReasoning())
    return ThunderAgent("thunderagent-faithful", parts)


def _thunderagent(name: str, targets: Targets, shadows: Shadows) -> Policy:
    return ThunderAgent(name, Parts(5.0, HalvingWeight(), MarkEnough(), targets, PresentSizes(), shadows))


BASELINES: Mapping[str, Callable[[], Policy]] = {
    "round-robin": round_robin,
    "least-loaded": least_loaded,
    "consistent-hash": consistent_hash,
    "vllm-cache-aware": vllm_cache_aware,
    "sglang-cache-aware": sglang_cache_aware,
    "dynamo-kv": dynamo_kv,
    "llm-d": llm_d,
    "sticky-least-loaded": sticky_least_loaded,
    "thunderagent": thunderagent,
    "thunderagent-halflife": thunderagent_halflife,
    "thunderagent-faithful": thunderagent_faithful,
    "thunderagent-no-release": thunderagent_no_release,
    "thunderagent-origin": thunderagent_origin,
    "thunderagent-origin-wait": thunderagent_origin_wait,
    "progress-ttl": ProgressTtl,
    "aimd": Aimd,
    "session-fcfs": SessionFcfs,
}
