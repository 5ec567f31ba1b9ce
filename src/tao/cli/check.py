"""`tao check`: what TAO will and will not know of a replica, for people or as JSON.

Wires the inspection to the terminal; what is found and what it means is decided there.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tao.gateway.sources import AddressError, check_address
from tao.inspection import Check, EngineClient, EngineError, Finding, Level, check_engine

SECONDS = 60.0
SIGNS = {
    Level.KNOWN: ("known", "green"),
    Level.NOTE: ("note", "yellow"),
    Level.MISSING: ("missing", "bold red"),
}


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--model", metavar="NAME", help="The model to ask for.  [default: the first that is served]")
@click.option(
    "--api-key",
    envvar="TAO_ENGINE_KEY",
    metavar="KEY",
    help="For engines that want one; also TAO_ENGINE_KEY.",
)
@click.option(
    "--kv-events", metavar="ENDPOINT", help="Where KV events are published, if the engine cannot be asked."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of tables.")
def command(
    urls: Sequence[str], model: str | None, api_key: str | None, kv_events: str | None, *, as_json: bool
) -> None:
    """Look at replicas: what TAO will know of them, what not, and how to turn it on.

    Reads each engine's pages and sends it a few tiny requests: the same prompt of a few hundred tokens twice and a
    short stream, and where it publishes KV events one or two more. Nothing is changed.

    Exit code: 0 all is well, 1 something is missing that matters, 2 a replica cannot be reached.

    \b
    Example: tao check http://127.0.0.1:8000
    """
    for url in urls:
        try:
            check_address(url)
        except AddressError as error:
            raise click.UsageError(str(error)) from error
    results = asyncio.run(_all(urls, model, api_key, kv_events))
    if as_json:
        documents = [_document(url, result) for url, result in results]
        click.echo(msgspec.json.format(msgspec.json.encode(documents), indent=2))
    else:
        for url, result in results:
            _show(url, result)
    if any(isinstance(result, EngineError) for _, result in results):
        raise SystemExit(2)
    if not all(isinstance(result, Check) and result.complete for _, result in results):
        raise SystemExit(1)


async def _all(
    urls: Sequence[str], model: str | None, api_key: str | None, kv_events: str | None
) -> list[tuple[str, Check | EngineError]]:
    async def one(url: str) -> Check | EngineError:
        try:
            async with EngineClient(url, api_key=api_key, timeout_seconds=SECONDS) as client:
                return await check_engine(client, model, kv_events)
        except EngineError as error:
            return error

    return list(zip(urls, await asyncio.gather(*(one(url) for url in urls)), strict=True))


def _show(url: str, result: Check | EngineError) -> None:
    console = Console()
    if isinstance(result, EngineError):
        console.print(Text.assemble((f"{url}: ", "bold"), (f"cannot be looked at: {result}", "red")))
        return
    table = Table(title=url, title_justify="left", title_style="bold", show_lines=False)
    table.add_column("")
    table.add_column("what", no_wrap=True)
    table.add_column("TAO will know", ratio=1)
    for finding in result.findings:
        sign, style = SIGNS[finding.level]
        table.add_row(Text(sign, style), finding.topic, _told(finding))
    console.print(table)
    missing = [finding.topic for finding in result.findings if finding.level is Level.MISSING]
    console.print(f"missing: {', '.join(missing)}" if missing else "nothing is missing that matters")


def _told(finding: Finding) -> Text:
    told = Text(finding.told)
    if finding.remedy:
        told.append(f"\n-> {finding.remedy}", "cyan")
    return told


def _document(url: str, result: Check | EngineError) -> dict[str, Any]:
    if isinstance(result, EngineError):
        return {"url": url, "reachable": False, "error": str(result)}
    return {**asdict(result), "url": url, "reachable": True, "complete": result.complete}
