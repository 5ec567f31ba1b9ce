"""The configuration of `tao serve`: one immutable value, from a TOML file and command-line options.

Unknown keys are errors, with the nearest known key as a hint; nothing is silently ignored. All spans are wall-clock
seconds unless the field says model seconds.
"""

import os
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from tao.core import SchedulerSettings
from tao.gateway.kvsources import KvSourceConfig, configured_sources, sources_problem
from tao.gateway.slots import slots_problem
from tao.gateway.sources import AddressError, Discovery, check_address, replica_name

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
SECTIONS = ("limits", "timeouts", "keep_alive", "health", "identity", "scheduler", "discovery")


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the key and what to do."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes. A larger request body is refused with 413."""

    body_bytes_max: int = 64 * 1024 * 1024
    identities_max: int = 65_536


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Transport bounds towards the engines. Silence is measured between two pieces of an answer.

    `first_byte_seconds` covers the engine's own queue and prefill. `client_stall_seconds`: how long a client may leave its
    answer unread. `drain_seconds`: how long a shutdown waits for what runs.
    """

    connect_seconds: float = 5.0
    first_byte_seconds: float = 1800.0
    silence_seconds: float = 600.0
    client_stall_seconds: float = 300.0
    drain_seconds: float = 60.0


class KeepAlive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A held streaming request gets a sign of life after `grace_seconds`, then every `period_seconds`."""

    grace_seconds: float = 10.0
    period_seconds: float = 10.0


class Health(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each replica is looked at every `period_seconds`; after `failures_max` failures in a row it is down."""

    period_seconds: float = 1.0
    timeout_seconds: float = 2.0
    failures_max: int = 2


class IdentityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`strict`: contradicting session ids in one request are refused (400) instead of taking the first."""

    strict: bool = False
    idle_seconds: float = 3600.0


class SchedulerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of the core, in model seconds (see `tao.core.SchedulerSettings`)."""

    hold_seconds_max: float = 300.0
    no_replica_seconds_max: float = 30.0
    idle_seconds_max: float = 600.0
    plan_seconds_max: float = 10.0
    sessions_max: int = 20_000
    held_turns_max: int = 4_096

    def settings(self) -> SchedulerSettings:
        """The same as the core's own type."""
        return SchedulerSettings(**{f.name: getattr(self, f.name) for f in fields(SchedulerSettings)})


class GatewayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything `tao serve` can be told. `replicas` may be empty: others may be found in a file, behind DNS names or
    Kubernetes services. `admin_token_file` holds the token by which operators change them while the gateway runs.
    `capacity_tokens`: used where an engine does not tell its KV capacity. `kv_events`: `auto` watches the cache of every
    replica that publishes KV events, `off` of none; `kv_sources` says where, for engines that cannot be asked, and
    `kv_blocks_max` bounds the blocks that are remembered of each. `ask_usage`: streams are asked for their token counts.

    `model_aliases`: what a model that no replica names stands for; `*`: any other. The request passes as it is.
    `replica_slots`: how many sessions are admitted to one replica at most (its `max_num_seqs`); `engine`: as many as it
    tells; None: as many as its capacity holds. `slots`: the same of single replicas, by URL.

    `predictor`: who predicts returns; the policy's own choice where None. `state_file`: where what it learns outlives the
    process, saved every `state_period_seconds`. `plan_deadline_seconds`: a plan that takes longer is replaced by the
    fallback. `record_log`: a file for every event and its commands. `record_snapshots`: a folder for every joint
    decision, as `tao plan` reads it. `record_trace`: a file for the sessions, as `tao simulate` reads them. `log_format`:
    `console` or `json`.
    """

    replicas: tuple[str, ...] = ()
    replicas_file: str | None = None
    replicas_dns: tuple[str, ...] = ()
    replicas_kubernetes: tuple[str, ...] = ()
    admin_token_file: str | None = None
    host: str = "127.0.0.1"
    port: int = 8100
    policy: str = "tao"
    predictor: str | None = None
    state_file: str | None = None
    state_period_seconds: float = 60.0
    speed: float = 1.0
    capacity_tokens: int | None = None
    replica_slots: int | str | None = None
    slots: dict[str, int] = {}
    model_aliases: dict[str, str] = {}
    kv_events: str = "auto"
    kv_sources: tuple[KvSourceConfig, ...] = ()
    kv_blocks_max: int = 1 << 20
    ask_usage: bool = False
    plan_deadline_seconds: float = 1.0
    record_log: str | None = None
    record_snapshots: str | None = None
    record_trace: str | None = None
    log_format: str = "console"
    log_level: str = "info"
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    keep_alive: KeepAlive = KeepAlive()
    health: Health = Health()
    identity: IdentityConfig = IdentityConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    discovery: Discovery = Discovery()


def load_config(path: Path | None, *, operators: bool = False, **overrides: Any) -> GatewayConfig:
    """The configuration of a file, with options that are not None or empty laid over it. Raises `ConfigError`.

    `operators`: they have a token that the configuration does not name, and may add replicas.
    """
    document: dict[str, Any] = {}
    if path is not None:
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from None
    _check_keys(document, GatewayConfig, str(path or "configuration"))
    document |= {key: value for key, value in overrides.items() if value not in (None, ())}
    try:
        config = msgspec.convert(document, GatewayConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path or 'configuration'}: {error}") from None
    _check_values(config, operators)
    return config


def _check_keys(document: dict[str, Any], of: type[msgspec.Struct], where: str) -> None:
    known = {field.name: field.type for field in msgspec.structs.fields(of)}
    for key, value in document.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")
        kind = known[key]
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            _check_keys(value, kind, f"{where}: [{key}]")
        for entry, of_entry in _tables(value, kind):
            _check_keys(entry, of_entry, f"{where}: [[{key}]]")


def _tables(value: Any, kind: Any) -> Iterator[tuple[dict[str, Any], type[msgspec.Struct]]]:
    """The entries of an array of tables, with what each has to be."""
    (of, *_) = get_args(kind) or (None,)
    if isinstance(value, list) and isinstance(of, type) and issubclass(of, msgspec.Struct):
        yield from ((entry, of) for entry in value if isinstance(entry, dict))


def _check_values(config: GatewayConfig, operators: bool) -> None:
    others = operators or _others_are_named(config)
    _check_replicas(config, others)
    _check_no_loop(config)
    _check_files_differ(config)
    if not 0 <= config.port <= 65_535:
        raise ConfigError(f"port {config.port} is not between 0 and 65535")
    _check_slots(config, others)
    if config.kv_events not in {"auto", "off"}:
        raise ConfigError(f"kv_events must be 'auto' or 'off', not {config.kv_events!r}")
    _check_kv_sources(config, others)
    if config.log_format not in {"console", "json"}:
        raise ConfigError(f"log_format must be 'console' or 'json', not {config.log_format!r}")
    if config.log_level not in {"debug", "info", "warning", "error"}:
        raise ConfigError(f"log_level must be debug, info, warning or error, not {config.log_level!r}")
    _check_positive(config)


def _check_slots(config: GatewayConfig, others: bool) -> None:
    try:
        problem = slots_problem(config.replica_slots, config.slots, config.replicas, others=others)
    except AddressError as error:
        raise ConfigError(f"[slots]: {error}") from None
    if problem is not None:
        raise ConfigError(problem)


def _check_kv_sources(config: GatewayConfig, others: bool) -> None:
    try:
        configured_sources(config.kv_sources)
    except ValueError as error:
        raise ConfigError(f"[[kv_sources]]: {error}") from None
    if config.kv_sources and config.kv_events == "off":
        raise ConfigError("kv_events is 'off', so nobody listens at [[kv_sources]]: leave one of them out")
    problem = sources_problem(config.kv_sources, config.replicas, others=others)
    if problem is not None:
        raise ConfigError(problem)


def _others_are_named(config: GatewayConfig) -> bool:
    """Whether the configuration says where replicas may come from, beside those that it lists."""
    found = (config.replicas_file, config.replicas_dns, config.replicas_kubernetes, config.admin_token_file)
    return any(found)


def _check_replicas(config: GatewayConfig, others: bool) -> None:
    if not config.replicas and not others:
        raise ConfigError(
            "no replica is named; give at least one --replica URL, or where to find them: --replicas-file, "
            "--replicas-dns, --replicas-kubernetes, or --admin-token-file (or TAO_ADMIN_TOKEN) to add them later"
        )
    names: dict[str, str] = {}
    for url in config.replicas:
        try:
            check_address(url)
        except AddressError as error:
            raise ConfigError(str(error)) from None
        name = replica_name(url)
        if name in names:
            raise ConfigError(f"a replica is named twice: {names[name]!r} and {url!r}")
        names[name] = url


def _check_files_differ(config: GatewayConfig) -> None:
    """Two that are written to one file would each destroy what the other wrote."""
    taken: dict[str, str] = {}
    for key in ("state_file", "record_log", "record_trace"):
        value = getattr(config, key)
        if value is None:
            continue
        other = taken.setdefault(os.path.realpath(value), key)
        if other != key:
            raise ConfigError(f"{other} and {key} are the same file, {value}: name two")


def _check_no_loop(config: GatewayConfig) -> None:
    """The gateway as its own replica would pass each turn to itself without end."""
    own = {config.host}
    if config.host in _LOOPBACK | _EVERYWHERE:
        own |= _LOOPBACK
    for url in config.replicas:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if parts.hostname in own and port == config.port:
            raise ConfigError(
                f"replica {url!r} is where this gateway is to listen; give one of them another port"
            )


def _check_positive(config: GatewayConfig) -> None:
    sections = {"": config, **{f"[{name}] ": getattr(config, name) for name in SECTIONS}}
    for where, values in sections.items():
        for field in msgspec.structs.fields(values):
            value = getattr(values, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or field.name == "port":
                continue
            if not (value > 0 and isfinite(value)):
                raise ConfigError(f"{where}{field.name} must be a number greater than 0, not {value}")
