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


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Heads are text, cells are HTML."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def notes(stand_ins: Mapping[str, str], violations: Iterable[str]) -> str:
    """What a reader must not miss: traces that were not there, and what is wrong with the figures."""
    texts = [
        f"The trace <b>{escape(name)}</b> was not found; {escape(used)} stands in for it, so the figures are no "
        "measure of anything but that the suite runs."
        for name, used in stand_ins.items()
    ]
    texts += [f"<b>Unsound:</b> {escape(text)}" for text in violations]
    return "".join(f'<p class="note">{text}</p>' for text in texts)
