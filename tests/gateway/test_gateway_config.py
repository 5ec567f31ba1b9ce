"""The configuration: a file, options laid over it, and a message for everything that cannot be meant."""

from pathlib import Path
from typing import Any

import pytest

from tao.core import SchedulerSettings
from tao.gateway.config import ConfigError, GatewayConfig, SchedulerConfig, load_config
from tao.gateway.sources import Discovery, check_address, replica_name

URL = "http://127.0.0.1:8000"
GOOD = f"""
replicas = ["{URL}", "http://10.0.0.6:8000"]
policy = "round-robin"
capacity_tokens = 500_000

[scheduler]
hold_seconds_max = 60

[identity]
strict = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "tao.toml"
    path.write_text(text)
    return path


def test_a_file_with_options_laid_over_it(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    config = load_config(path, policy="tao", replicas=(), host=None, port=0, speed=None)
    assert config.replicas == (URL, "http://10.0.0.6:8000")
    assert (config.policy, config.port, config.host) == ("tao", 0, "127.0.0.1")
    assert config.capacity_tokens == 500_000
    assert config.scheduler.hold_seconds_max == 60.0
    assert config.identity.strict
    assert load_config(path, replicas=(URL,)).replicas == (URL,)


def test_the_defaults_are_those_of_the_core() -> None:
    assert SchedulerConfig().settings() == SchedulerSettings()
    assert load_config(None, replicas=(URL,)) == GatewayConfig(replicas=(URL,))


@pytest.mark.parametrize(
    ("text", "says_what"),
    [
        ("speeed = 2", "unknown key 'speeed'; did you mean 'speed'?"),
        (
            "[scheduler]\nhold_second_max = 2",
            "[scheduler]: unknown key 'hold_second_max'; did you mean 'hold_seconds_max'?",
        ),
        ("[helth]\nperiod_seconds = 2", "unknown key 'helth'; did you mean 'health'?"),
        ("zzz = 1", "unknown key 'zzz'; known keys: admin_token_file, ask_usage"),
        ('kv_events = "on"', "kv_events must be 'auto' or 'off', not 'on'"),
        ("kv_blocks_max = 0", "kv_blocks_max must be a number greater than 0, not 0"),
        ('[[kv_sources]]\nreplica = "http://a:1"', "missing required field `endpoint`"),
        (
            '[[kv_sources]]\nreplica = "http://a:1"\nendpoint = "http://a:2"',
            "[[kv_sources]]: 'http://a:2' is no endpoint; write it like tcp://10.0.0.5:5557",
        ),
        (
            '[[kv_sources]]\nreplica = "http://a:1"\nendpont = "tcp://a:2"',
            "[[kv_sources]]: unknown key 'endpont'; did you mean 'endpoint'?",
        ),
        (
            '[[kv_sources]]\nreplica = "http://a:1"\nendpoint = "tcp://a:2"\nrank = -1',
            "[[kv_sources]]: rank of 'http://a:1' must be at least 0, not -1",
        ),
        (
            'replicas = ["http://a:1"]\nkv_events = "off"\n'
            '[[kv_sources]]\nreplica = "http://a:1"\nendpoint = "tcp://a:2"',
            "kv_events is 'off', so nobody listens at [[kv_sources]]",
        ),
        ("[limits]\nzzz = 1", "[limits]: unknown key 'zzz'; known keys: body_bytes_max, identities_max"),
        ('speed = "fast"', "Expected `float`, got `str` - at `$.speed`"),
        ('replicas = "http://a"', "Expected `array`, got `str` - at `$.replicas`"),
        ("limits = 3", "at `$.limits`"),
        ("port = 1.5", "at `$.port`"),
        ("speed = 0", "speed must be a number greater than 0, not 0.0"),
        ("speed = -1", "speed must be a number greater than 0, not -1.0"),
        ("speed = nan", "speed must be a number greater than 0, not nan"),
        ("speed = inf", "speed must be a number greater than 0, not inf"),
        ("port = 70_000", "port 70000 is not between 0 and 65535"),
        ("port = -1", "port -1 is not between 0 and 65535"),
        ("capacity_tokens = 0", "capacity_tokens must be a number greater than 0, not 0"),
        ("plan_deadline_seconds = -1.0", "plan_deadline_seconds must be a number greater than 0"),
        ("[limits]\nbody_bytes_max = -5", "[limits] body_bytes_max must be a number greater than 0, not -5"),
        ("[timeouts]\nconnect_seconds = 0", "[timeouts] connect_seconds must be a number greater than 0"),
        ("[keep_alive]\ngrace_seconds = -1", "[keep_alive] grace_seconds must be a number greater than 0"),
        ("[health]\nfailures_max = 0", "[health] failures_max must be a number greater than 0"),
        ("[identity]\nidle_seconds = 0", "[identity] idle_seconds must be a number greater than 0"),
        (
            "[scheduler]\nhold_seconds_max = inf",
            "[scheduler] hold_seconds_max must be a number greater than 0",
        ),
        ("[scheduler]\nsessions_max = 0", "[scheduler] sessions_max must be a number greater than 0"),
        ('log_level = "loud"', "log_level must be debug, info, warning or error, not 'loud'"),
        ('log_format = "xml"', "log_format must be 'console' or 'json', not 'xml'"),
        ("speed = ", "not valid TOML"),
        ("\udcff", "not valid TOML"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, text: str, says_what: str) -> None:
    path = tmp_path / "tao.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    urls = () if "replicas" in text else (URL,)
    with pytest.raises(ConfigError) as caught:
        load_config(path, replicas=urls)
    assert says_what in str(caught.value)


@pytest.mark.parametrize(
    ("urls", "says_what"),
    [
        ((), "no replica is named; give at least one --replica URL"),
        (("127.0.0.1:8000",), "is not an http(s) URL; write it like http://127.0.0.1:8000"),
        (("ftp://a",), "is not an http(s) URL"),
        (("http://",), "is not an http(s) URL"),
        (("http://a:99999",), "Port out of range"),
        (("http://a:port",), "Port could not be cast"),
        (("http://a:0",), "is not an http(s) URL"),
        (("http://[::1",), "Invalid IPv6 URL"),
        (("http://a:1/v1",), "ends in /v1, which clients add themselves"),
        (("http://a:1/v1/",), "ends in /v1, which clients add themselves"),
        (("http://a:1?x=1",), "has more than host, port and path"),
        (("http://me:secret@a:1",), "has more than host, port and path"),
        (("http://a:1?",), "has more than host, port and path"),
        (("http://a:1/b#",), "has more than host, port and path"),
        (("http://bücher:8000",), "write a host in punycode (xn--...), a path percent-encoded (%C3%BC)"),
        (("http://a:1/ärger",), "write a host in punycode (xn--...), a path percent-encoded (%C3%BC)"),
        (("http://a:1/日本",), "write a host in punycode (xn--...), a path percent-encoded (%C3%BC)"),
        (
            ("http://a..b:8000",),
            "has a host with an empty part between its dots, or one of more than 63 characters",
        ),
        (("http://.a:8000",), "has a host with an empty part between its dots"),
        ((f"http://{'a' * 64}.b:8000",), "or one of more than 63 characters"),
        ((URL, URL), "a replica is named twice"),
        (("http://a:80", "http://A/"), "a replica is named twice: 'http://a:80' and 'http://A/'"),
    ],
)
def test_replicas_that_cannot_be_meant(urls: tuple[str, ...], says_what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, replicas=urls)
    assert says_what in str(caught.value)


def kv_source(replica: str, rank: int = 0) -> str:
    return (
        f'[[kv_sources]]\nreplica = "{replica}"\nendpoint = "tcp://10.0.0.6:{5557 + rank}"\nrank = {rank}\n'
    )


@pytest.mark.parametrize(
    ("text", "says_what"),
    [
        (
            kv_source("127.0.0.1:8000"),
            "[[kv_sources]]: replica '127.0.0.1:8000' is not an http(s) URL; write it",
        ),
        (kv_source("http://[::1"), "[[kv_sources]]: replica 'http://[::1': Invalid IPv6 URL; write it"),
        (
            kv_source("http://127.0.0.1:800"),
            "[[kv_sources]] names 'http://127.0.0.1:800', which is no replica; there are: http://127.0.0.1:8000",
        ),
        (
            kv_source(URL) + kv_source(URL, 1) + kv_source(URL + "/", 1),
            "[[kv_sources]] names 'http://127.0.0.1:8000/' twice with rank 1; give each entry of a replica its own",
        ),
    ],
)
def test_sources_of_kv_events_that_belong_to_nobody_or_are_named_twice(
    tmp_path: Path, text: str, says_what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), replicas=(URL,))
    assert says_what in str(caught.value)


def test_sources_of_kv_events_may_be_of_replicas_that_are_named_later(tmp_path: Path) -> None:
    text = kv_source(URL) + kv_source(URL, 1) + kv_source("http://10.0.0.6:8000")
    config = load_config(write(tmp_path, text), replicas=(URL,), replicas_file="replicas.toml")
    assert [entry.rank for entry in config.kv_sources] == [0, 1, 0]


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("127.0.0.1", 8100, "http://127.0.0.1:8100"),
        ("127.0.0.1", 8100, "http://LocalHost:8100/below"),
        ("0.0.0.0", 8000, "http://127.0.0.1:8000"),
        ("::1", 8000, "http://[::1]:8000"),
        ("gateway.example", 80, "http://gateway.example"),
        ("gateway.example", 443, "https://gateway.example"),
    ],
)
def test_a_gateway_that_would_be_its_own_replica(host: str, port: int, url: str) -> None:
    with pytest.raises(ConfigError, match="is where this gateway is to listen"):
        load_config(None, host=host, port=port, replicas=(url,))
    load_config(None, host=host, port=port + 1, replicas=(url,))
    load_config(None, host="10.0.0.9", port=port, replicas=(url,))


def test_an_engine_behind_tls_beside_a_gateway_on_port_80() -> None:
    load_config(None, host="127.0.0.1", port=80, replicas=("https://127.0.0.1",))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "127.0.0.1:8000"),
        ("http://engine", "engine:80"),
        ("https://engine/", "engine:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://router:80/engine-1/", "router:80/engine-1"),
        ("http://xn--bcher-kva.example.:80/%C3%BC", "xn--bcher-kva.example.:80/%C3%BC"),
    ],
)
def test_what_a_replica_is_called(url: str, name: str) -> None:
    assert replica_name(url) == name
    check_address(url)


def test_every_key_can_be_set(tmp_path: Path) -> None:
    """A configuration written out with all its keys reads back as it was."""
    import msgspec

    config = msgspec.structs.replace(
        GatewayConfig(replicas=(URL,)),
        predictor="constant-5s",
        state_file="learned.json",
        replicas_file="replicas.toml",
        admin_token_file="token",
        discovery=Discovery(kubernetes_api="http://a", kubernetes_token_file="t", kubernetes_ca_file="c"),
        capacity_tokens=7,
        replica_slots=3,
        model_aliases={"a": "b"},
        record_log="a.log",
        record_snapshots="folder",
        record_trace="live.jsonl",
    )
    document: dict[str, Any] = msgspec.to_builtins(config)
    lines = [f"{key} = {_toml(value)}" for key, value in document.items() if not isinstance(value, dict)]
    for section, values in document.items():
        if isinstance(values, dict):
            lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    assert load_config(write(tmp_path, "\n".join(lines))) == config


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
