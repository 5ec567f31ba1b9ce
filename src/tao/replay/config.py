"""What a replay is asked to do: the endpoint, the load, and how a trace becomes requests.

Values and their checks only. It must not know asyncio or HTTP.
"""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

TURN_FIELDS = frozenset({"model", "messages", "max_tokens", "ignore_eos", "stream", "stream_options"})
"""Of the body of each request, set by the replay itself."""


class EndpointError(Exception):
    """The endpoint cannot be replayed against at all; the message says why and what to do."""


class ToldOfTools(StrEnum):
    """What an endpoint is told of tools beside the turns: nothing, their names, or also when they return (an oracle)."""

    NOTHING = "nothing"
    NAMES = "names"
    RETURNS = "returns"


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """A closed loop of `concurrency` workers against `target`. Wrong values raise ValueError.

    Times of the trace are divided by `speed`, measured times multiplied by it: all results are model seconds.
    Names that end in `wall_seconds` are real time on this machine, because they guard the transport.

    - `model`: name sent in each request; None = the first that `/v1/models` lists.
    - `human_wait_seconds_max`: cap on each wait for a human, model seconds.
    - `system_tokens`: length of a system prompt shared by the sessions of one source, where the trace records
    none.
    - `chars_per_token`: fixed ratio for the lengths of texts; None = learned from what the endpoint reports.
    - `turn_wall_seconds_max`: deadline of one attempt, from connecting to the last byte.
    - `retries_max`: attempts after the first on 429, 5xx, a refused or broken connection, a broken stream.
    - `session_header`: header with the session's id (None = none); a child adds `x-parent-session-id`.
    - `session_field`: field of each request's body with the session's id (None = none), for routers that take it there.
    - `release_path`: where the id is posted, in that field, when a session has ended (None = nowhere).
    - `final_header`: header sent as `true` with the last turn of a session (None = none).
    - `run_id`: put before session ids and into texts, so that a repeated run is new to the gateway and its
    caches.
    - `told_of_tools`: what the endpoint's tools API is told when a tool starts.
    - `tool_delay_seconds`: (least, most) of one fixed extra delay of each session's tools, drawn by `seed`, model
    seconds.
    - `seed`: of the texts; equal seeds give equal prompts as long as the answers are equal.
    """

    target: str
    concurrency: int = 8
    speed: float = 1.0
    model: str | None = None
    human_wait_seconds_max: float = 30.0
    system_tokens: int = 0
    chars_per_token: float | None = None
    turn_wall_seconds_max: float = 900.0
    retries_max: int = 5
    api_key: str | None = None
    session_header: str | None = "X-Session-ID"
    session_field: str | None = None
    release_path: str | None = None
    final_header: str | None = None
    run_id: str = ""
    seed: int = 0
    told_of_tools: ToldOfTools = ToldOfTools.NOTHING
    tool_delay_seconds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        url = urlsplit(self.target)
        try:
            port = url.port
        except ValueError as error:
            raise ValueError(f"target {self.target!r}: {error}") from None
        if port == 0 or url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"target must be a URL such as http://127.0.0.1:8000, not {self.target!r}")
        _require("concurrency", self.concurrency, 1, 10_000)
        _require("speed", self.speed, 1e-3, 1e4)
        _require("human_wait_seconds_max", self.human_wait_seconds_max, 0, 1e9)
        _require("system_tokens", self.system_tokens, 0, 10_000_000)
        if self.chars_per_token is not None:
            _require("chars_per_token", self.chars_per_token, 0.1, 100)
        _require("turn_wall_seconds_max", self.turn_wall_seconds_max, 0.01, 1e6)
        _require("retries_max", self.retries_max, 0, 100)
        if self.session_field in TURN_FIELDS:
            raise ValueError(
                f"the session's field cannot be {self.session_field!r}: each request has one already"
            )
        if self.release_path is not None and (self.session_field is None or self.release_path[:1] != "/"):
            raise ValueError(
                "a release needs the field that carries the session's id, and a path that begins with /"
            )
        if self.tool_delay_seconds is not None:
            least, most = self.tool_delay_seconds
            _require("the least tool delay", least, 0, 1e6)
            _require("the most tool delay", most, least, 1e6)

    @property
    def base_url(self) -> str:
        """The target without a trailing slash and without `/v1`."""
        return self.target.rstrip("/").removesuffix("/v1").rstrip("/")


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least:g} and {most:g}, not {value!r}")
