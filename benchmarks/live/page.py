"""Puts measured tables into `docs/results/live.md`, between the markers of their block, and nowhere else.

The page says how the figures come about; a run renews only what it measured. Text in, text out, but for `renew`.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "live.md"
PLOT = ROOT / "docs" / "images" / "live-engines.svg"
END = "<!-- end of measured -->"


def replaced(page: str, block: str, content: str) -> str:
    """The page with `content` between the markers of `block`. ValueError where there are none."""
    begin = f"<!-- measured: {block} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"the page has no block {begin} ... {END}")
    return f"{before}{begin}\n\n{content.strip()}\n\n{END}{after}"


def renew(block: str, content: str, path: Path = PAGE) -> None:
    """Write the block into the page."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), block, content), encoding="utf-8")
