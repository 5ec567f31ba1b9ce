"""`--policy module:Class`: the example works, and what cannot work is refused with its cause."""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from core_kit import World, of_kind

from tao.core import Scheduler
from tao.core.commands import DispatchTurn
from tao.core.events import ReplicaJoined, TurnArrived
from tao.core.ids import ReplicaId, SessionId, TurnId
from tao.policies import POLICIES, UnknownPolicyError, UnusablePolicyError, make_policy

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "tenant_homes.py"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be imported, and are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, source: str, name: str = "mine.py") -> None:
    (folder / name).write_text(textwrap.dedent(source))


# --- the example --------------------------------------------------------------------------------------------------------


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    policy = make_policy("tenant_homes:TenantHomes")
    assert policy.name == "tenant-homes"
    scheduler = Scheduler(policy)
    for replica in "abc":
        scheduler.handle(ReplicaJoined(0.0, ReplicaId(replica), 1_000_000))
    homes: dict[str, list[str]] = {}
    for number in range(40):
        tenant = f"tenant-{number % 4}"
        event = TurnArrived(0.0, TurnId(f"t{number}"), SessionId(f"s{number}"), 100, tenant=tenant)
        [dispatch] = of_kind(scheduler.handle(event), DispatchTurn)
        homes.setdefault(tenant, []).append(dispatch.replica)
    scheduler.check_invariants()
    assert all(len(set(replicas[:2])) == 1 for replicas in homes.values()), homes  # at home while it is calm
    assert {replica for replicas in homes.values() for replica in replicas} == {"a", "b", "c"}  # and spilling


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "policies-of-your-own.md").read_text()
    blocks = re.findall(r'```python title="examples/tenant_homes.py"\n(.*?)```', page, flags=re.DOTALL)
    assert blocks == [EXAMPLE.read_text()]


def test_the_page_names_every_method_of_the_protocol() -> None:
    from tao.policies.own import _methods

    page = (ROOT / "docs" / "policies-of-your-own.md").read_text()
    missing = [name for name, _ in _methods() if f"`{name}`" not in page]
    assert missing == []


def test_a_class_that_is_a_whole_policy_is_taken(modules: Path) -> None:
    write(
        modules,
        """
        from tao.policies.baselines import PerTurnPolicy
        from tao.policies.baselines.balancing import LeastLoaded

        def made() -> PerTurnPolicy:
            return PerTurnPolicy("made-by-a-function", LeastLoaded())
        """,
    )
    w = World(make_policy("mine:made"), a=1_000)
    assert of_kind(w.arrive("s", "t"), DispatchTurn)


def test_each_call_makes_a_fresh_policy(modules: Path) -> None:
    write(
        modules,
        """
        from tao.policies.baselines.session_fcfs import SessionFcfs

        class Mine(SessionFcfs):
            name = "mine"
        """,
    )
    assert make_policy("mine:Mine") is not make_policy("mine:Mine")


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [":Mine", "mine:", "mine:a.b", "mine:Mine()", "mine:x:y"])
def test_a_reference_has_a_module_and_a_name(reference: str) -> None:
    with pytest.raises(UnusablePolicyError, match=r"package.module:Class"):
        make_policy(reference)


def test_no_such_module() -> None:
    with pytest.raises(UnusablePolicyError, match=r"no module 'nowhere' in this environment.*PYTHONPATH"):
        make_policy("nowhere.at.all:Mine")


def test_a_module_that_imports_what_is_missing(modules: Path) -> None:
    write(modules, "import not_installed_here")
    with pytest.raises(
        UnusablePolicyError, match=r"importing mine failed: ModuleNotFoundError.*not_installed_here"
    ):
        make_policy("mine:Mine")


def test_a_module_that_fails_while_it_is_imported(modules: Path) -> None:
    write(modules, "raise RuntimeError('not today')")
    with pytest.raises(UnusablePolicyError, match="importing mine failed: RuntimeError: not today"):
        make_policy("mine:Mine")


def test_no_such_class(modules: Path) -> None:
    write(modules, "class Mine: ...")
    with pytest.raises(UnusablePolicyError, match=r"module mine has no Mime; did you mean Mine?"):
        make_policy("mine:Mime")


def test_something_that_makes_nothing(modules: Path) -> None:
    write(modules, "mine = 7")
    with pytest.raises(UnusablePolicyError, match="mine:mine is int, neither a class nor a function"):
        make_policy("mine:mine")


def test_a_constructor_that_fails(modules: Path) -> None:
    write(modules, "class Mine:\n    def __init__(self, knob): ...")
    with pytest.raises(
        UnusablePolicyError, match=r"mine:Mine\(\) failed: TypeError.*knob.*without arguments"
    ):
        make_policy("mine:Mine")


def test_what_is_missing_is_named(modules: Path) -> None:
    write(
        modules,
        """
        from tao.policies.baselines.session_fcfs import SessionFcfs

        class Mine(SessionFcfs):
            name = "Not Kebab"
            decide = None
            def place(self, view, session): ...
            def observe(self, view, fact, *, extra): ...
        """,
    )
    with pytest.raises(UnusablePolicyError) as refused:
        make_policy("mine:Mine")
    told = str(refused.value)
    assert "its name 'Not Kebab' is not in kebab-case" in told
    assert "it has no method decide(view, at)" in told
    assert "place cannot be called as place(view, session, turn, at)" in told
    assert "observe cannot be called as observe(view, fact)" in told
    assert "select" not in told


def test_a_thing_that_is_no_policy_at_all(modules: Path) -> None:
    write(modules, "class Mine: ...")
    with pytest.raises(UnusablePolicyError, match=r"no `name`, a str; .*no method weight_tokens"):
        make_policy("mine:Mine")


def test_the_name_of_another_policy_is_taken(modules: Path) -> None:
    write(
        modules,
        "from tao.policies.baselines.session_fcfs import SessionFcfs\nclass Mine(SessionFcfs):\n    name = 'tao'",
    )
    with pytest.raises(UnusablePolicyError, match="calls itself 'tao'"):
        make_policy("mine:Mine")


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(
        UnknownPolicyError, match=r"did you mean 'thunderagent'.*session-fcfs.*package.module:Class"
    ):
        make_policy("thunder-agent")


# --- the catalogue and its pages ----------------------------------------------------------------------------------------


def test_policies_go_by_the_name_they_are_chosen_by() -> None:
    assert {name: make_policy(name).name for name in POLICIES} == {name: name for name in POLICIES}


def test_every_baseline_has_a_page_that_is_listed() -> None:
    from tao.policies.baselines import BASELINES

    folder = ROOT / "docs" / "baselines"
    index, navigation = (folder / "index.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    for name in BASELINES:
        page = (folder / f"{name}.md").read_text()
        for heading in ("## What it does", "## Source", "## What differs here"):
            assert heading in page, (name, heading)
        assert f"({name}.md)" in index, name
        assert f"baselines/{name}.md" in navigation, name
