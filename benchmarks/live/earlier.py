"""The runs that an earlier call of the benchmark has made: what is there need not be made again.

A whole run takes hours, and a machine may not be had for so long at once. Runs are compared in pairs of one repeat, so a
repeat that was broken off may be completed later; each row says when and of which code it was made. It must not know how
a run is made.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def earlier_rows(path: Path, config: Any) -> Rows:
    """Rows of the result at `path` but those that failed; none where there is no such file.

    Raises ValueError where it cannot be read or was made with another configuration than `config`, a dataclass.
    """
    if not path.exists():
        return []
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        made, rows = result["config"], result["rows"]
        kept = [row for row in rows if "error" not in row]
        _ = [done(row) for row in kept]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no result that can be completed ({error!r}): move it away, or leave out --resume"
        ) from error
    if made != dataclasses.asdict(config):
        raise ValueError(
            f"{path} was made with {made}, not with {dataclasses.asdict(config)}: its runs cannot be compared with others; "
            "choose another --out"
        )
    return kept


def done(row: dict[str, Any]) -> tuple[int, str]:
    """Which run a row is of: repeat and peer."""
    return int(row["repeat"]), str(row["peer"])
