"""The pages on configuration and operation say what the code says: every key with its default, every metric."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tao.core import Scheduler
from tao.core.commands import Reason
from tao.core.ids import ReplicaId
from tao.gateway.bookmetrics import BookedSoFar
from tao.gateway.config import SECTIONS, GatewayConfig
from tao.gateway.creditmetrics import CreditSoFar
from tao.gateway.kvmetrics import WatchSoFar
from tao.gateway.metrics import GatewayMetrics
from tao.gateway.planner import PlannerFigures
from tao.gateway.reconciling import Reconciliation
from tao.policies import make_policy
from tao.policies.returns import ReturnCalibration
from tao.policies.survival import MeasuredSurvival

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?P<default>.*?) \| (?:(?P<unit>.*?) )?\| (?P<what>.+) \|$")
NO_DEFAULTS = {
    **dict.fromkeys(("replicas", "replicas_dns", "replicas_kubernetes", "model_aliases", "slots"), "none"),
    "predictor": "the policy's own",
}


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Key: default and unit, as the table of a section of the page has them."""
    page = (DOCS / "configuration.md").read_text("utf-8")
    title = f"## `[{section}]`" if section else "## The gateway"
    _, found, rest = page.partition(f"\n{title}\n")
    assert found, f"docs/configuration.md has no section {title!r}"
    lines = rest.partition("\n## ")[0].splitlines()
    rows = [row for line in lines if (row := ROW.match(line))]
    return {row["key"]: (row["default"], row["unit"] or "") for row in rows}


def shown(key: str, value: Any) -> str:
    """A default as the page shows it."""
    if key in NO_DEFAULTS:
        return NO_DEFAULTS[key]
    if value is None:
        return "not set"
    text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return f"`{text}`"


@pytest.mark.parametrize("section", ["", *SECTIONS])
def test_every_key_is_documented_with_its_default(section: str) -> None:
    values: Any = getattr(GatewayConfig(), section) if section else GatewayConfig()
    expected = {
        field.name: shown(field.name, getattr(values, field.name))
        for field in msgspec.structs.fields(values)
        if field.name not in SECTIONS
    }
    assert {key: default for key, (default, _) in documented(section).items()} == expected


@pytest.mark.parametrize("section", ["", *SECTIONS])
def test_units_are_those_of_the_names(section: str) -> None:
    for key, (_, unit) in documented(section).items():
        if "seconds" in key:
            assert unit == ("model s" if section == "scheduler" else "s"), key
        if "bytes" in key:
            assert unit == "bytes", key
        if "tokens" in key:
            assert unit == "KV tokens", key


class NothingWatched:
    """A watch of no cache: its metrics are on the page all the same."""

    def figures(self) -> Iterator[tuple[ReplicaId, Mapping[str, float]]]:
        return iter(())


def metric_names() -> set[str]:
    """What the gateway's page has, without the moments at which counters were made."""
    scheduler = Scheduler(make_policy("tao"))
    metrics = GatewayMetrics(scheduler, PlannerFigures(), ReturnCalibration())
    metrics.show(BookedSoFar(Reconciliation(scheduler.view, lambda: 0.0)))
    metrics.show(WatchSoFar(NothingWatched()))
    metrics.show(CreditSoFar(MeasuredSurvival()))
    families = [family.name for family in text_string_to_metric_families(metrics.page().decode())]
    return {name for name in families if not name.endswith("_created")}


def test_every_metric_is_documented() -> None:
    page = (DOCS / "operating.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `(tao_\w+)` \|", page, flags=re.MULTILINE))
    assert {name.removesuffix("_total") for name in rows} == metric_names()


def test_every_reason_is_documented() -> None:
    page = (DOCS / "gateway.md").read_text("utf-8")
    table = page.partition("| reason |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, flags=re.MULTILINE)) == {
        reason.value for reason in Reason
    }
