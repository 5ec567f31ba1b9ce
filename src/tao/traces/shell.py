"""What a shell command says about how long it runs: its literal sleeps, its time-out and its first program.

A small linear reader of POSIX-like command lines, not a shell: it splits words and operators, follows
`bash -c '...'`, and counts only what surely runs - nothing inside loops, conditionals, functions, comments,
strings or here-documents, and nothing after `||`. Recorded commands and those of live answers are read alike. It must
not know tools, JSON or formats.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

COMMAND_CHARS_MAX = 16_384
HEAD_CHARS_MAX = 64

_NESTING_MAX = 4
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash"})
_OPENERS = frozenset({"for", "while", "until", "if", "case", "select", "function", "{"})
_HEADERS = frozenset({"for", "case", "select", "function"})
_CLOSERS = frozenset({"done", "fi", "esac", "}"})
_KEYWORDS = frozenset({"then", "do", "else", "elif", "if", "while", "until", "{", "!"})
_OPTIONS_WITH_VALUE = frozenset({"-s", "-k", "--signal", "--kill-after", "-u", "-g", "-n", "-C"})
_PREFIXES = frozenset(
    {"sudo", "nohup", "exec", "time", "command", "builtin", "env", "nice", "stdbuf", "setsid"}
)
SETUP = frozenset(
    {"cd", "pushd", "popd", "export", "source", ".", "set", "unset", "alias", "shopt", "ulimit", "umask"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})([smhd]?)")
_UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n)
      | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
      | (?P<heredoc><<-?[ \t]*(?P<quote>['"]?)(?P<mark>[A-Za-z_][A-Za-z0-9_]{0,63})(?P=quote))
      | (?P<redirect>[0-9]{0,3}(?:&>>?|>>|>\||>&|<&|<<<|<>|<|>)&?)
      | (?P<operator>&&|\|\||\|&|;;|[;&|()\n])
      | (?P<single>'[^']*+'?)
      | (?P<double>"(?:[^"\\]++|\\.)*+"?)
      | (?P<escape>\\.|\\\Z)
      | (?P<substitution>`[^`]*(?:`|\Z)|\$\()
      | (?P<plain>[^\s\\'"`;&|()<>$]+|\$)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ShellTiming:
    """What is known before the command runs; None where it says nothing.

    `head` is the first program that does the work (no path), after `cd`, assignments and wrappers.
    """

    head: str | None
    sleep_seconds: float | None
    timeout_seconds: float | None
    background: bool


@dataclass(frozen=True, slots=True)
class _Command:
    """A simple command without wrappers: its words, the operators around it, the time-out around it."""

    words: tuple[str, ...]
    before: str
    after: str
    depth: int
    limit_seconds: float | None


def read_command(command: str) -> ShellTiming:
    """Read one command line; takes time linear in its length and never raises."""
    commands = list(_commands(command[:COMMAND_CHARS_MAX], None, 0))
    sleeps = [seconds for one in commands if (seconds := _sleep_of(one)) is not None]
    work = [one for one in commands if one.words[0] not in SETUP]
    return ShellTiming(
        head=_head(commands),
        sleep_seconds=sum(sleeps) if sleeps else None,
        timeout_seconds=work[0].limit_seconds if len(work) == 1 else None,
        background=bool(commands) and commands[-1].after == "&",
    )


def duration_seconds(word: str) -> float | None:
    """A `sleep`-style duration (`5`, `0.5s`, `2m`) in seconds; None for all else, `infinity` included."""
    match = _DURATION.fullmatch(word)
    return None if match is None else float(match[1]) * _UNIT_SECONDS[match[2]]


def _commands(command: str, limit: float | None, nesting: int) -> Iterator[_Command]:
    """The simple commands in order, those of nested shells in place of the shell."""
    depth = 0
    for raw, before, after in _split(command):
        if not raw:
            continue
        depth = max(0, depth - (raw[0] in _CLOSERS)) + (raw[0] in _OPENERS)
        words, own_limit = _unwrap(raw)
        if not words or words[0] in _CLOSERS or words[0] in _HEADERS:
            continue
        bound = _tighter(limit, own_limit)
        script = _inner_script(words) if nesting < _NESTING_MAX else None
        if script is None or depth or before == "||" or after == "&":
            yield _Command(words, before, after, depth, bound)
        else:
            yield from _commands(script, bound, nesting + 1)


def _tighter(one: float | None, other: float | None) -> float | None:
    known = [limit for limit in (one, other) if limit is not None]
    return min(known, default=None)


def _split(command: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(words, operator before, operator after) of each simple command."""
    words: list[str] = []
    word: list[str] | None = None
    before, position, skip_target = "", 0, False
    heredocs: list[str] = []
    while position < len(command):
        match = _TOKEN.match(command, position)
        if match is None:
            position += 1
            continue
        position = match.end()
        kind = match.lastgroup or ""
        if kind in {"single", "double", "escape", "substitution", "plain"}:
            word = [] if word is None else word
            word.append(_literal(kind, match[0]))
            if match[0] == "$(":
                position = _after_parenthesis(command, position)
            continue
        if word is not None:
            if not skip_target:
                words.append("".join(word))
            skip_target, word = False, None
        if match["heredoc"]:
            heredocs.append(match["mark"])
        elif kind == "redirect":
            skip_target = True
        elif kind == "operator":
            yield tuple(words), before, match[0]
            words, before = [], match[0]
            if match[0] == "\n" and heredocs:
                position = _after_heredocs(command, position, heredocs)
    if word is not None and not skip_target:
        words.append("".join(word))
    yield tuple(words), before, ""


def _literal(kind: str, token: str) -> str:
    if kind == "single":
        return token[1:-1] if len(token) > 1 and token.endswith("'") else token[1:]
    if kind == "double":
        inner = token[1:-1] if len(token) > 1 and token.endswith('"') else token[1:]
        return re.sub(r"\\([\"\\$`])", r"\1", inner)
    if kind == "escape":
        return token[1:]
    # A substitution's value is unknown; the mark keeps the word from reading as a literal.
    return "$" if kind == "substitution" else token


def _after_parenthesis(command: str, position: int) -> int:
    depth = 1
    while position < len(command) and depth:
        depth += {"(": 1, ")": -1}.get(command[position], 0)
        position += 1
    return position


def _after_heredocs(command: str, position: int, marks: list[str]) -> int:
    while marks and position < len(command):
        end = command.find("\n", position)
        end = len(command) if end < 0 else end
        if command[position:end].strip() == marks[0]:
            marks.pop(0)
        position = end + 1
    marks.clear()
    return min(position, len(command))


def _unwrap(words: tuple[str, ...]) -> tuple[tuple[str, ...], float | None]:
    """`words` without the assignments, keywords and wrappers before the program, and `timeout`'s bound if
    any.
    """
    index, limit = 0, None
    while index < len(words):
        word = words[index]
        if word in _PREFIXES:
            index = _after_options(words, index + 1)
        elif word == "timeout":
            index = _after_options(words, index + 1)
            limit = _tighter(limit, duration_seconds(words[index])) if index < len(words) else limit
            index += 1
        elif word in _KEYWORDS or _ASSIGNMENT.match(word):
            index += 1
        else:
            break
    return words[index:], limit


def _after_options(words: tuple[str, ...], index: int) -> int:
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _OPTIONS_WITH_VALUE else 1
    return index


def _inner_script(words: tuple[str, ...]) -> str | None:
    """The script of `bash -c SCRIPT` and its like."""
    if not words or _program(words[0]) not in _SHELLS:
        return None
    for index, word in enumerate(words[1:8], start=1):
        if not word.startswith("-"):
            return None
        if not word.startswith("--") and "c" in word:
            return words[index + 1] if index + 1 < len(words) else None
    return None


def _sleep_of(one: _Command) -> float | None:
    if one.depth or one.before == "||" or one.after == "&" or len(one.words) < 2:
        return None
    if _program(one.words[0]) != "sleep":
        return None
    total = 0.0
    for word in one.words[1:]:
        part = duration_seconds(word)
        if part is None:
            return None
        total += part
    return total if one.limit_seconds is None else min(total, one.limit_seconds)


def _program(word: str) -> str:
    return word.rpartition("/")[2][:HEAD_CHARS_MAX]


def _head(commands: list[_Command]) -> str | None:
    names = [_program(one.words[0]) for one in commands if one.words[0] not in SETUP]
    setup = [_program(one.words[0]) for one in commands if one.words[0] in SETUP]
    return next((name for name in (*names, *setup) if name), None)
