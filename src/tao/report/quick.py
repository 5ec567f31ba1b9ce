"""The small form of a suite, for `--quick`: fewer seeds, points, policies and replicas, and less load on less memory.

What is kept is the pressure: workers for each token of memory. It must not know how runs are made or shown.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tao.enginemodel import load_profile
from tao.report.suite import PolicySuite, Quick, Setting, SuiteT
from tao.report.suitecheck import pairs_of

T = TypeVar("T")
SMALL = " (made small)"


def made_small(suite: SuiteT) -> SuiteT:
    """The `--quick` form: fewer seeds, points and policies, and every setting `shrink` times smaller."""
    quick = suite.quick
    names = quick.settings or tuple(setting.name for setting in suite.settings)
    kept = [setting for setting in suite.settings if setting.name in names]
    policies = quick.policies or suite.policies
    small = msgspec.structs.replace(
        suite,
        description=f"{suite.description.strip()}\n{_smallness(quick)}",
        seeds=min(quick.seeds, suite.seeds),
        policies=policies,
        settings=tuple(_small_setting(setting, quick) for setting in kept),
    )
    if isinstance(small, PolicySuite):
        baselines = tuple(name for name in small.baselines if name in policies)
        return msgspec.structs.replace(small, baselines=baselines)
    return small


def _smallness(quick: Quick) -> str:
    return (
        f"Made small by --quick: load and memory divided by {quick.shrink}, fewer replicas, points, policies and seeds. An "
        "impression and no measurement: with so few seeds only large differences are wins or losses."
    )


def _small_setting(setting: Setting, quick: Quick) -> Setting:
    pairs = _evenly(list(pairs_of(setting)), quick.points)
    small: list[tuple[int, int]] = []
    kv_share = 1.0
    for replicas, workers in pairs:
        fewer = min(replicas, max(2, replicas // 2))  # one replica leaves nothing to choose
        kv_share = replicas / fewer / quick.shrink
        small.append((fewer, max(1, workers // quick.shrink)))
    profile = load_profile(setting.profile)
    kv_tokens = int((setting.kv_tokens or profile.kv_tokens) * kv_share)
    return msgspec.structs.replace(
        setting,
        name=f"{setting.name}{SMALL}",
        replicas=tuple(replicas for replicas, _ in small),
        concurrency=tuple(workers for _, workers in small),
        kv_tokens=kv_tokens,
        sessions=max(setting.sessions // quick.shrink, 2 * max(workers for _, workers in small)),
        variants=_evenly(setting.variants, max(quick.points, 2)),
    )


def _evenly(values: Sequence[T], count: int) -> tuple[T, ...]:
    """`count` of the values, evenly spread; the one in the middle where only one is wanted."""
    if len(values) <= count:
        return tuple(values)
    if count == 1:
        return (values[len(values) // 2],)
    return tuple(values[round(n * (len(values) - 1) / (count - 1))] for n in range(count))
