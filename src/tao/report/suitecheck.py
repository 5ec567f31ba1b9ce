"""What a suite has to be beyond its fields, asked before anything runs: names that are told apart, policies that exist,
something to run, and points that the report can tell apart.

It must not know files, nor how runs are made or shown.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tao.planning import SOLVERS
from tao.policies import UnknownPolicyError, UnusablePolicyError, make_policy

if TYPE_CHECKING:
    from tao.report.suite import Setting, Suite

TOLD_RETURNS = "+told-returns"
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def complaints(suite: "Suite") -> Iterator[str]:
    """What is wrong with the suite, each as a sentence that names the key; nothing where it can be run."""
    if not FILE_NAME.fullmatch(suite.name):
        yield f"name: {suite.name!r} names the report's files: letters, digits, '.', '_' and '-' only"
    for key in ("baselines", "solvers"):
        yield from _listed(key, getattr(suite, key, ()))
    known = suite.policies
    yield from _unknown("baselines that are no policies of it", getattr(suite, "baselines", ()), known)
    yield from _unknown("solvers that do not exist", getattr(suite, "solvers", ()), tuple(SOLVERS))
    if hasattr(suite, "solvers"):
        wrong = "a reference that is no solver of it"
        yield from _unknown(wrong, (getattr(suite, "reference", ""),), suite.solvers)
    yield from _policies("policies", suite.policies)
    if not suite.policies:
        yield "policies: none is named"
    yield from _unknown("quick.policies that are no policies of it", suite.quick.policies, suite.policies)
    names = [setting.name for setting in suite.settings]
    yield from _listed("setting names", names)
    yield from _unknown("quick.settings that are no settings of it", suite.quick.settings, names)
    for setting in suite.settings:
        for complaint in _of_setting(setting, suite.sweeps):
            yield f"{setting.name!r}: {complaint}"


def _of_setting(setting: "Setting", sweeps: str) -> Iterator[str]:
    for key in ("traces", "concurrency", "replicas", "variants"):
        if not getattr(setting, key):
            yield f"{key}: none is named"
    yield from _listed("traces", setting.traces)
    yield from _listed("variant names", [variant.name for variant in setting.variants])
    for variant in setting.variants:
        yield from _policies(f"policies of variant {variant.name!r}", variant.policies)
    if len(setting.replicas) > 1 and len(setting.replicas) != len(setting.concurrency):
        yield "replicas and concurrency need the same length"
    elif len(set(pairs_of(setting))) < len(pairs_of(setting)):
        yield "concurrency: a number is there twice"
    elif sweeps != "variants":
        swept = [
            {"workers": workers, "replicas": replicas}[sweeps] for replicas, workers in pairs_of(setting)
        ]
        if len(set(swept)) < len(swept):
            yield f"two points have the same number of {sweeps}, which is what the suite sweeps"


def pairs_of(setting: "Setting") -> list[tuple[int, int]]:
    """Replicas and workers of each point of a setting."""
    if len(setting.replicas) == 1:
        return [(setting.replicas[0], workers) for workers in setting.concurrency]
    return list(zip(setting.replicas, setting.concurrency, strict=True))


def _listed(key: str, names: Sequence[str]) -> Iterator[str]:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        yield f"{key}: {', '.join(twice)} is there twice"


def _policies(key: str, names: Sequence[str]) -> Iterator[str]:
    yield from _listed(key, names)
    for name in names:
        try:
            make_policy(name.removesuffix(TOLD_RETURNS))
        except (UnknownPolicyError, UnusablePolicyError) as error:
            yield f"{key}: {error}"


def _unknown(wrong: str, names: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    missing = [name for name in names if name not in known]
    if missing:
        yield f"{wrong}: {', '.join(missing)}; known: {', '.join(known)}"
