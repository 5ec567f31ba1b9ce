"""Writes the parts of the documentation that the code knows better: between markers, in place.

    <!-- generated: state-diagram -->
    ...
    <!-- end of generated -->

A page that wants a block holds its markers; what stands between them is replaced. With `--check` nothing is
written, and a page that is out of date fails. The text is committed, so that pages read well on a forge too.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from tao import cli
from tao.core import transitions
from tao.gateway.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"(?P<start><!-- generated: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end of generated -->)",
    flags=re.DOTALL,
)
HELP_WIDTH = 100


def state_diagram() -> str:
    """The phases of a session and what leads from one to another, from the core's transition table."""
    return f"```mermaid\n{transitions.mermaid()}\n```\n"


def transition_table() -> str:
    """Every row of the core's transition table: phase, event, the phases that may follow."""
    lines = ["| phase | event | may lead to |", "|---|---|---|"]
    for (phase, stimulus), targets in transitions.TABLE.items():
        following = ", ".join(f"`{target.__name__}`" for target in targets)
        lines.append(f"| `{phase.__name__}` | `{stimulus.__name__}` | {following} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """What each command and its subcommands print for `--help`, as wide on every terminal."""
    return "\n".join(_help_of(cli.main, click.Context(cli.main, info_name="tao", terminal_width=HELP_WIDTH)))


def _help_of(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        within = click.Context(command, info_name=name, parent=context, terminal_width=HELP_WIDTH)
        path = within.command_path
        yield f"{'#' * (1 + path.count(' '))} `{path}`\n\n```text\n{command.get_help(within)}\n```\n"
        if isinstance(command, click.Group):
            yield from _help_of(command, within)


def metrics() -> str:
    """Every metric of the gateway's page."""
    lines = ["| metric | labels | what |", "|---|---|---|"]
    for name, text, labels in METRICS:
        lines.append(f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |")
    return "\n".join(lines) + "\n"


BLOCKS: Mapping[str, Callable[[], str]] = {
    "command-line": command_line,
    "metrics": metrics,
    "state-diagram": state_diagram,
    "transition-table": transition_table,
}


class UnknownBlockError(Exception):
    """A page asks for a block that no function here writes."""


def renew(page: str) -> str:
    """The page with every block written anew; raises UnknownBlockError for a name without a function."""

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in BLOCKS:
            raise UnknownBlockError(f"unknown block {name!r}, known are {', '.join(BLOCKS)}")
        return f"{found['start']}\n{BLOCKS[name]()}\n{found['end']}"

    return BLOCK.sub(block, page)


def main(argv: list[str] | None = None) -> int:
    """Renew the pages under `docs/`; with `--check`, 1 when one is out of date."""
    parser = argparse.ArgumentParser(description="Renew the generated parts of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a page is out of date")
    options = parser.parse_args(argv)
    stale = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.read_text()
        renewed = renew(page)
        if renewed != page:
            stale.append(path.relative_to(ROOT).as_posix())
            if not options.check:
                path.write_text(renewed)
    if stale and options.check:
        print(f"out of date, run `make docs`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
