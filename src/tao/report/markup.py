"""The frame of a report's page and its tables as HTML: one file that needs no network to be read.

It knows how pages look and nothing of what they say.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources


def document(title: str, parts: Iterable[str], script: str) -> str:
    """A whole page. `title` is text, `parts` are HTML, `script` is put into the page."""
    style = resources.files("tao.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{style}</style>\n<script>{script}</script></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """Heads are text, cells are HTML. The first `text_columns` hold words, the others numbers.

    Rows that share their first cell stand together, with a line between such groups where there are several columns of
    words.
    """
    marks = [' class="text"' if n < text_columns else "" for n in range(len(heads))]
    head = "".join(f"<th{mark}>{escape(text)}</th>" for text, mark in zip(heads, marks, strict=True))
    body = []
    before: str | None = None
    for row in rows:
        begins = text_columns > 1 and before is not None and row[0] != before
        before = row[0]
        cells = "".join(f"<td{mark}>{cell}</td>" for cell, mark in zip(row, marks, strict=True))
        body.append(f'<tr class="first">{cells}</tr>' if begins else f"<tr>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def prose(text: str) -> str:
    """A paragraph; what stands between backticks is code."""
    parts = escape(text.strip()).split("`")
    return "<p>" + "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts)) + "</p>"


def notes(stand_ins: Mapping[str, str], violations: Iterable[str]) -> str:
    """What a reader must not miss: traces that were not there, and what is wrong with the figures."""
    texts = [
        f"The trace <b>{escape(name)}</b> was not found; {escape(used)} stands in for it, so the figures are no "
        "measure of anything but that the suite runs."
        for name, used in stand_ins.items()
    ]
    texts += [f"<b>Unsound:</b> {escape(text)}" for text in violations]
    return "".join(f'<p class="note">{text}</p>' for text in texts)
