"""Generated parts of the documentation are replaced between their markers, and only there."""

import pytest

import generate_docs
from tao.core.transitions import TABLE


def page_with(block: str, content: str = "old\n") -> str:
    return f"# Title\n\n<!-- generated: {block} -->\n{content}<!-- end of generated -->\n\nAfter.\n"


def test_a_page_without_markers_stays_as_it_is() -> None:
    assert generate_docs.renew("# Title\n\ntext\n") == "# Title\n\ntext\n"


@pytest.mark.parametrize("block", ["state-diagram", "transition-table"])
def test_a_block_is_replaced_once_and_for_all(block: str) -> None:
    renewed = generate_docs.renew(page_with(block))
    assert "old" not in renewed
    assert renewed.startswith("# Title\n")
    assert renewed.endswith("\n\nAfter.\n")
    assert generate_docs.renew(renewed) == renewed


def test_the_table_has_a_line_for_each_row() -> None:
    rows = [line for line in generate_docs.transition_table().splitlines() if line.startswith("| `")]
    assert len(rows) == len(TABLE)


def test_an_unknown_block_is_named() -> None:
    with pytest.raises(generate_docs.UnknownBlockError, match="no-such-block"):
        generate_docs.renew(page_with("no-such-block"))
