"""Suites of runs as data: TOML files that say which settings to compare which policies in, and how they are read.

A setting is swept over one thing (workers, replicas, or named variants); its points times the policies times the seeds
are the runs. What is compared is the suite's `kind`: policies by their figures, or the planner's solvers on the
decisions that the runs had to take. It must not know how runs are made or shown.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from tao.core import SchedulerSettings
from tao.enginemodel import Profile, load_profile
from tao.report.suitecheck import TOLD_RETURNS, complaints, pairs_of
from tao.sim.run import UNLIMITED_KV_TOKENS, Order, RunSpec
from tao.sim.scaling import scaled
from tao.sim.workload import ClosedLoop, WorkloadSettings
from tao.traces.model import SECONDS_MAX, Tokens

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
KvTokens = Annotated[int, Meta(ge=16, le=UNLIMITED_KV_TOKENS)]
Factor = Annotated[float, Meta(gt=0, le=1000.0)]
Replicas = Annotated[int, Meta(ge=1, le=1024)]
Seeds = Annotated[int, Meta(ge=1, le=1000)]


class SuiteError(ValueError):
    """A suite that does not exist, cannot be read, or makes no sense; the text says which and why."""


class Variant(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a setting's engine or tools, by name: factors on the profile's constants, a delay of all tools."""

    name: str
    decode: Factor = 1.0
    prefill: Factor = 1.0
    kv: Factor = 1.0
    tool_delay_seconds: tuple[float, float] | None = None
    policies: tuple[str, ...] = ()


class Setting(Struct, frozen=True, forbid_unknown_fields=True):
    """One model on its replicas under one load. `stands_for`: the set-up of the paper that it is in the shape of.

    `concurrency` with several `replicas` is read in pairs. `kv_tokens`: of one replica, instead of the profile's.
    `group_size`: each of the `sessions` is played so many times in a row, as rollouts of one prompt.
    """

    name: str
    profile: str
    traces: tuple[str, ...]
    concurrency: tuple[Count, ...]
    stands_for: str = ""
    replicas: tuple[Replicas, ...] = (1,)
    sessions: Count = 500
    kv_tokens: KvTokens | None = None
    system_tokens: Tokens = 0
    group_size: Annotated[int, Meta(ge=1, le=1024)] = 1
    hold_seconds_max: Annotated[float, Meta(gt=0, le=SECONDS_MAX)] = 300.0
    variants: tuple[Variant, ...] = (Variant("as it is"),)


class Quick(Struct, frozen=True, forbid_unknown_fields=True):
    """How the suite is made small: load and memory are divided by `shrink`, of each sweep `points` values are kept."""

    shrink: Count = 4
    points: Count = 1
    seeds: Seeds = 2
    settings: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


class Suite(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """Runs to make: each of the policies at each point of the settings, with each seed.

    A policy named `NAME+told-returns` is NAME in runs where every tool exposes when it will return.
    """

    name: str
    title: str
    description: str
    policies: tuple[str, ...]
    settings: Annotated[tuple[Setting, ...], Meta(min_length=1)] = field(name="setting")
    seeds: Seeds = 5
    sweeps: Literal["workers", "replicas", "variants"] = "workers"
    quick: Quick = Quick()


class PolicySuite(Suite, frozen=True, kw_only=True, tag="policies"):
    """Policies compared by the figures of their runs; `baselines`: those that all are measured against, cell by cell."""

    baselines: tuple[str, ...]


class SnapshotSuite(Suite, frozen=True, kw_only=True, tag="snapshots"):
    """Solvers compared on every joint decision of the runs; `reference`: the one that all are measured against."""

    solvers: tuple[str, ...]
    reference: str = "exact"
    seeds: Seeds = 1


AnySuite = PolicySuite | SnapshotSuite
SuiteT = TypeVar("SuiteT", bound=Suite)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a sweep: what all policies and seeds of it have in common. `x` is what the sweep's axis shows."""

    setting: Setting
    variant: Variant
    x: str
    replicas: int
    concurrency: int
    kv_tokens: int | None
    sessions: int


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a suite. `is_floor`: the run with unlimited memory."""

    point: Point
    policy: str
    seed: int
    spec: RunSpec
    is_floor: bool = False


def suite_names() -> tuple[str, ...]:
    """Names of the suites that come with the package, sorted."""
    folder = resources.files("tao.report").joinpath("suites")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_suite(name_or_path: str) -> AnySuite:
    """A suite by name, or from a TOML file when the argument ends in `.toml`. Raises SuiteError."""
    if name_or_path.endswith(".toml"):
        try:
            return parse_suite(Path(name_or_path).read_text(encoding="utf-8-sig"), name_or_path)
        except (OSError, UnicodeDecodeError) as error:
            raise SuiteError(f"suite file {name_or_path} cannot be read: {error}") from error
    if name_or_path not in suite_names():
        known = ", ".join(suite_names())
        raise SuiteError(f"unknown suite {name_or_path!r}; known: {known}; or give the path of a .toml file")
    file = resources.files("tao.report").joinpath("suites", f"{name_or_path}.toml")
    return parse_suite(file.read_text(encoding="utf-8"), f"{name_or_path}.toml")


def parse_suite(text: str, origin: str) -> AnySuite:
    """Parse the TOML text of a suite; `origin` names it in errors (SuiteError). Its kind is `policies` if it says none."""
    try:
        suite: AnySuite = msgspec.convert({"kind": "policies", **tomllib.loads(text)}, AnySuite)
    except RecursionError as error:
        raise SuiteError(f"suite {origin}: nested too deeply") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SuiteError(f"suite {origin}: {error}") from error
    wrong = next(complaints(suite), None)
    if wrong is not None:
        raise SuiteError(f"suite {origin}: {wrong}")
    return suite


def with_seeds(suite: SuiteT, seeds: int) -> SuiteT:
    """The suite with another number of seeds."""
    return msgspec.structs.replace(suite, seeds=seeds)


def points_of(suite: Suite) -> Iterator[Point]:
    """All points of all settings, in the order of the file."""
    for setting in suite.settings:
        for variant in setting.variants:
            for replicas, workers in pairs_of(setting):
                x = {"workers": str(workers), "replicas": str(replicas), "variants": variant.name}[
                    suite.sweeps
                ]
                kv_tokens = setting.kv_tokens
                if variant.kv != 1.0:
                    kv_tokens = int((kv_tokens or load_profile(setting.profile).kv_tokens) * variant.kv)
                yield Point(setting, variant, x, replicas, workers, kv_tokens, setting.sessions)


def cases_of(suite: Suite, available: dict[str, int]) -> Iterator[Case]:
    """All runs of a suite: for each point and seed the policies, then the floor where policies are compared.

    `available`: how many sessions each trace has; a point that wants more plays them repeatedly, under new names.
    Every seed is another order of the sessions, the same for all policies: comparisons are paired.
    """
    for point in points_of(suite):
        total = sum(available[name] for name in point.setting.traces)
        if not total:
            raise SuiteError(f"{', '.join(point.setting.traces)}: no session is in there")
        for seed in range(suite.seeds):
            try:
                base = _spec(point, seed, repeats=-(-point.sessions // total))
            except ValueError as error:
                raise SuiteError(f"suite {suite.name}: {point.setting.name!r}: {error}") from error
            for policy in point.variant.policies or suite.policies:
                yield Case(point, policy, seed, _played_by(policy, base))
            if isinstance(suite, PolicySuite):
                floor = base.floor()
                yield Case(point, floor.policy, seed, floor, is_floor=True)


def _spec(point: Point, seed: int, repeats: int) -> RunSpec:
    setting = point.setting
    return RunSpec(
        policy="",
        profile=_profile(setting, point.variant),
        replicas=point.replicas,
        arrivals=ClosedLoop(point.concurrency),
        traces=setting.traces,
        kv_tokens=point.kv_tokens,
        seed=seed,
        order=Order(point.sessions, seed, repeats=repeats, group_size=setting.group_size),
        workload=WorkloadSettings(
            system_tokens=setting.system_tokens,
            tool_delay_seconds=point.variant.tool_delay_seconds,
            seed=seed,
        ),
        scheduler=SchedulerSettings(hold_seconds_max=setting.hold_seconds_max),
    )


def _played_by(policy: str, base: RunSpec) -> RunSpec:
    if not policy.endswith(TOLD_RETURNS):
        return replace(base, policy=policy)
    told = replace(base.workload, returns_told=True)
    return replace(base, policy=policy.removesuffix(TOLD_RETURNS), workload=told)


def _profile(setting: Setting, variant: Variant) -> Profile:
    return scaled(load_profile(setting.profile), decode=variant.decode, prefill=variant.prefill)
