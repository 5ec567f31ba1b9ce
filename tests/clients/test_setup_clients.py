"""The script that installs the agents says what is missing: npm, the platform, the registry."""

import platform
from pathlib import Path

import pytest

import setup_clients
from make_venv import InstallError


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to install into, on the platform of the lock."""
    monkeypatch.setattr(setup_clients, "AGENTS", tmp_path / "agents")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def npm_that(directory: Path, does: str) -> None:
    """An npm that is a shell script."""
    npm = directory / "npm"
    npm.write_text(f"#!/bin/sh\n{does}\n")
    npm.chmod(0o755)


def test_npm_is_missing(
    agents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(agents))
    assert setup_clients.main() == 1
    assert "npm is not on the PATH: install Node.js" in capsys.readouterr().err


def test_another_platform(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(InstallError, match="for Linux on x86_64 only, and this is Linux on arm64"):
        setup_clients.find_npm()


def test_the_registry_refuses(
    agents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    npm_that(agents, "echo npm error code E404 >&2; exit 1")
    monkeypatch.setenv("PATH", f"{agents}:/usr/bin:/bin")
    assert setup_clients.main() == 1
    told = capsys.readouterr().err
    assert "the registry that it is configured for must serve the packages" in told
    assert "npm error code E404" in told


def test_the_registry_does_not_answer(
    agents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    npm_that(agents, "exec sleep 60")
    monkeypatch.setenv("PATH", f"{agents}:/usr/bin:/bin")
    monkeypatch.setattr(setup_clients, "INSTALL_SECONDS_MAX", 0.2)
    assert setup_clients.main() == 1
    assert "does the registry answer?" in capsys.readouterr().err


def test_the_packages_lack_the_programs(
    agents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    npm_that(agents, "exit 0")
    monkeypatch.setenv("PATH", f"{agents}:/usr/bin:/bin")
    missing = {"claude": agents / "nowhere"}
    monkeypatch.setattr(setup_clients, "PROGRAMS", missing)
    assert setup_clients.main() == 1
    assert "these programs are not in them" in capsys.readouterr().err


def test_the_lock_names_no_registry_and_pins_what_it_installs() -> None:
    lock = (setup_clients.LOCKS / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert lock.count('"integrity": "sha512-') == len(setup_clients.PROGRAMS)
