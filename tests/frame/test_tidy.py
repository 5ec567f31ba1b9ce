"""House rules that no linter knows, as tests: sizes, charters, names, leftovers, what texts may not mention.

Each rule looks at one file and names what is wrong with it; each test applies one rule to all files of its kind
and shows every complaint at once.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = {"src": 350, "scripts": 350, "benchmarks": 350, "tests": 600}
FUNCTION_LINES_MAX = 70
CHARTER_LINES = range(2, 21)
CHARTER_FROM_LINES = 40  # a shorter module needs a docstring, but not one of several lines
VAGUE_CLASS = re.compile(r"^Base[A-Z]|(Manager|Helpers?|Utils?)$")
VAGUE_MODULES = {"common", "helper", "helpers", "misc", "util", "utils"}
MOCKS = ("unittest.mock", "mock.", "pytest_mock")
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
# The brackets keep this file from matching itself.
CONFLICT = re.compile(r"^(<<<<<<[<] |>>>>>>[>] )")
LEFTOVER = re.compile(r"\b(FIXM[E]|TOD[O]|XX[X]|HAC[K])\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(wor[k]|hom[e]|roo[t]|User[s])/\w")
REGISTRY_HOST = re.compile(r"pyp[i]\.org|pythonhoste[d]|registry\.npmj[s]|deb\.debia[n]")
TEXT_SUFFIXES = {
    "",
    ".css",
    ".html",
    ".in",
    ".js",
    ".json",
    ".md",
    ".py",
    ".sh",
    ".svg",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}


def files_of(trees: Iterable[str], suffixes: set[str]) -> list[Path]:
    return sorted(
        path
        for tree in trees
        for path in (ROOT / tree).rglob("*")
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts
    )


def assert_kept(rule: Callable[[Path], Iterator[str]], files: Iterable[Path]) -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}: {complaint}" for path in files for complaint in rule(path)
    ]
    assert not found, "\n" + "\n".join(found)


def python_files(*trees: str) -> list[Path]:
    files = files_of(trees or tuple(FILE_LINES_MAX), {".py"})
    assert files, f"no Python files in {trees}: this test looks in the wrong place"
    return files


def text_files() -> list[Path]:
    top = sorted(path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES)
    return [path for path in top if not path.name.startswith(".")] + files_of(
        (*FILE_LINES_MAX, "docs", ".ci"), TEXT_SUFFIXES
    )


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def too_long(path: Path) -> Iterator[str]:
    lines, limit = (
        len(path.read_text(encoding="utf-8").splitlines()),
        FILE_LINES_MAX[path.relative_to(ROOT).parts[0]],
    )
    if lines > limit:
        yield f"{lines} lines, at most {limit}: split it where a reader would look for the parts"
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def without_charter(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if not text.strip():
        return  # the marker file of a package
    charter = ast.get_docstring(parse(path))
    if not charter:
        yield "opens without a docstring that says what lives here and what it must not know"
    elif path.is_relative_to(ROOT / "src") and len(text.splitlines()) >= CHARTER_FROM_LINES:
        lines = sum(1 for line in charter.splitlines() if line.strip())
        if lines not in CHARTER_LINES:
            yield f"its charter has {lines} lines, not {CHARTER_LINES.start} to {CHARTER_LINES.stop - 1}"


def vaguely_named(path: Path) -> Iterator[str]:
    if path.stem in VAGUE_MODULES:
        yield "a module name that could mean anything"
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef) and VAGUE_CLASS.search(node.name):
            yield f"class {node.name} could be anything"


def sleeping(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call) and dotted(node.func) == "time.sleep":
            yield f"line {node.lineno} sleeps: wait for the thing itself, with a deadline"


def stateful(path: Path) -> Iterator[str]:
    tree = parse(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"line {node.lineno} rebinds a global: state belongs to an object that somebody owns"
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, MUTABLE):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                if not name.strip("_").isupper() and name != "__all__":
                    yield f"{name} is a mutable value at module level and no CONSTANT"


def mocking(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        if any(f"{origin}{name}".startswith(MOCKS) for name in names):
            yield "imports mocks: write a small real implementation of the port instead"


def unfit_text(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, meaning in (
            (LEFTOVER, "is unfinished"),
            (CONFLICT, "is left of a merge"),
            (MACHINE_PATH, "names a path of somebody's machine"),
            (REGISTRY_HOST, "names a registry's host"),
        ):
            if pattern.search(line):
                yield f"line {number} {meaning}: {line.strip()}"


def test_files_and_functions_fit_a_reader() -> None:
    assert_kept(too_long, python_files())


def test_modules_open_with_their_charter() -> None:
    assert_kept(without_charter, python_files())


def test_names_say_what_a_thing_is() -> None:
    assert_kept(vaguely_named, python_files())


def test_nothing_sleeps_where_a_wait_belongs() -> None:
    assert_kept(sleeping, python_files())


def test_modules_hold_no_state() -> None:
    assert_kept(stateful, python_files("src"))


def test_tests_do_not_mock() -> None:
    assert_kept(mocking, python_files("tests"))


def test_texts_are_finished_and_speak_of_the_project_alone() -> None:
    assert_kept(unfit_text, text_files())


def test_the_rules_find_what_they_look_for(tmp_path: Path) -> None:
    """A rule that never complains would pass for ever."""
    sample = tmp_path / "utils.py"
    sample.write_text(
        "import time\nfrom unittest.mock import Mock\nsessions = {}\nclass BaseThing: ...\n"
        "def work():\n    global sessions\n    time.sleep(1)\n"
        + "# TOD"
        + "O: see /hom"
        + "e/somebody on pyp"
        + "i.org\n"
    )
    counts = {
        rule.__name__: len(list(rule(sample)))
        for rule in (without_charter, vaguely_named, sleeping, stateful, mocking, unfit_text)
    }
    assert counts == {
        "without_charter": 1,
        "vaguely_named": 2,
        "sleeping": 1,
        "stateful": 2,
        "mocking": 1,
        "unfit_text": 3,
    }
