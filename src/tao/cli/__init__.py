"""The command line: the composition root, and the only place that wires classes of several packages together.

Each command lives in a module of its own, named after it, and is imported when it is asked for: `tao --help` and
`tao plan` must not pay for an HTTP server.
"""

import errno
import importlib
import os
import sys
from typing import Any

import click

from tao import __version__

COMMANDS = {
    "serve": "Stand in front of replicas and schedule agent sessions.",
    "check": "Look at replicas: what TAO will know of them, and how to turn on the rest.",
    "demo": "Two emulated replicas under memory pressure: round-robin beside tao.",
    "emulate": "Serve a model of one replica over HTTP, in real time.",
    "replay": "Replay a trace of agent sessions against an endpoint and measure it.",
    "simulate": "Simulate policies on recorded sessions in virtual time.",
    "evaluate": "Run suites of simulations and report what each policy wins and loses.",
    "trace": "Convert, count and sample traces of agent sessions.",
    "hooks": "Make other programs report their tools to TAO: Claude Code.",
    "plan": "Solve one joint decision from a snapshot file.",
    "profile": "Measure an engine and write its profile for the emulator and the simulator.",
    "predict": "Predict tool returns on recorded sessions and say how well.",
}


INTERRUPTED = 130
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a write to the standard output may meet that is no defect of ours."""


class LazyGroup(click.Group):
    """Imports `tao.cli.<name>` and takes its attribute `command` when the command is used.

    Ctrl-C ends a command that has no answer of its own with exit code 130, an output that cannot be written with 1.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in NO_ROOM or error.filename is not None:
                raise
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # what is left cannot be written either
            click.echo(f"Error: cannot write the output: {error.strerror}", err=True)
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tao.cli.{cmd_name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="tao")
def main() -> None:
    """TAO schedules LLM agents: whole sessions across vLLM and SGLang replicas."""
