"""The architecture page and the transition table are in step."""

from pathlib import Path

from generate_docs import renew
from tao.core.transitions import mermaid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def test_the_page_shows_the_table_as_it_is() -> None:
    page = PAGE.read_text()
    assert mermaid() in page
    assert page.count("<!-- generated: ") == 2
    assert renew(page) == page, "run `make docs`"
