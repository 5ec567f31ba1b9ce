"""The texts around the code agree with it: changelog, dependencies, locks, links."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tao

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"
DOCS = ROOT / "docs"
KINDS_OF_CHANGE = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
VERSION_HEADING = re.compile(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})$")
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")


@pytest.fixture
def project() -> dict[str, Any]:
    parsed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(parsed, dict)
    return parsed


def distribution(requirement: str) -> str:
    """The normalised name in a requirement such as `coverage[toml]>=7`."""
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_the_changelog_keeps_its_form() -> None:
    lines = CHANGELOG.read_text().splitlines()
    assert lines[0] == "# Changelog"
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[0] == "## [Unreleased]"
    released = [VERSION_HEADING.match(heading) for heading in headings[1:]]
    assert all(released), f"a version's heading is `## [1.2.3] - 2026-01-31`: {headings}"
    versions = [tuple(int(part) for part in match.groups()[:3]) for match in released if match]
    assert versions == sorted(set(versions), reverse=True)
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= KINDS_OF_CHANGE


def test_the_version_is_not_behind_the_changelog() -> None:
    released = [VERSION_HEADING.match(line) for line in CHANGELOG.read_text().splitlines()]
    versions = [tuple(int(part) for part in match.groups()[:3]) for match in released if match]
    assert all(tuple(int(part) for part in tao.__version__.split(".")) >= version for version in versions)


def test_each_dependency_has_its_reason(project: dict[str, Any]) -> None:
    record = (DOCS / "adr" / "0002-dependencies.md").read_text()
    reasons = {
        line.split("|")[1].strip().strip("`") for line in record.splitlines() if line.startswith("| `")
    }
    needed = {distribution(requirement) for requirement in project["dependencies"]}
    assert reasons == needed, "docs/adr/0002-dependencies.md and pyproject.toml name different packages"


def test_each_dependency_is_pinned_for_development(project: dict[str, Any]) -> None:
    lock = (ROOT / "scripts" / "locks" / "dev.lock").read_text().splitlines()
    pinned = {distribution(line) for line in lock if line and not line.startswith("#")}
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    needed = {distribution(requirement) for requirement in (*project["dependencies"], *extras)}
    assert needed <= pinned, "run `make lock`"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_of_the_project_lead_somewhere(name: str) -> None:
    """The documentation's own links and its navigation are checked by its strict build."""
    missing = [target for target in LINK.findall((ROOT / name).read_text()) if not (ROOT / target).exists()]
    assert missing == []
