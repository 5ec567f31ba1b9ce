"""From the configuration of `tao serve` to sources of replicas and the operators' token; faults are refused at the start."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tao.cli.discovery import admin_token, kubernetes_access, replica_sources, token_in_environment
from tao.cli.serve import command
from tao.gateway.config import ConfigError, GatewayConfig, load_config
from tao.gateway.sources import Discovery

TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def outside_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "TAO_ADMIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_every_source_that_is_named_is_made(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    file.write_text('{"replicas": []}')
    config = load_config(
        None,
        replicas_file=str(file),
        replicas_dns=("http://engines:8000", "http://others:8000"),
        replicas_kubernetes=("llm/engines:http",),
        discovery={"kubernetes_api": "http://127.0.0.1:8001"},
    )
    assert [source.name for source in replica_sources(config)] == [
        f"file {file}",
        "dns http://engines:8000",
        "dns http://others:8000",
        "kubernetes llm/engines:http",
    ]
    assert replica_sources(GatewayConfig()) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"replicas_file": "absent.toml"}, "absent.toml: cannot be read"),
        ({"replicas_dns": ("https://a:1",)}, "certificates name hosts"),
        ({"replicas_dns": ("http://a:1", "http://a:1")}, "twice in the same place"),
        ({"replicas_kubernetes": ("engines",)}, "NAMESPACE/SERVICE"),
        ({"replicas_kubernetes": ("llm/engines",), "discovery": {}}, "in no cluster"),
        (
            {
                "replicas_kubernetes": ("a/b",),
                "discovery": {"kubernetes_api": "http://a", "kubernetes_ca_file": "no"},
            },
            "there is no file no",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(settings: dict[str, object], says: str) -> None:
    settings = {"discovery": {"kubernetes_api": "http://127.0.0.1:8001"}, **settings}
    with pytest.raises(ConfigError) as caught:
        replica_sources(load_config(None, **settings))
    assert says in str(caught.value)


def test_in_a_pod_the_cluster_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("t")
    authority.write_text("c")
    mine = Discovery(kubernetes_token_file=str(token), kubernetes_ca_file=str(authority))
    access = kubernetes_access(GatewayConfig(discovery=mine))
    assert (access.api, access.token_file, access.ca_file) == ("https://[fd00::1]:6443", token, authority)
    assert access.headers()["authorization"] == "Bearer t"
    with pytest.raises(ConfigError, match="there is no file /var/run/secrets"):
        kubernetes_access(GatewayConfig())


def test_the_token_comes_from_the_file_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert admin_token(GatewayConfig()) is None
    monkeypatch.setenv("TAO_ADMIN_TOKEN", TOKEN)
    assert admin_token(GatewayConfig()) == TOKEN
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-of-the-file\n")
    config = GatewayConfig(admin_token_file=str(file))
    assert admin_token(config) == f"{TOKEN}-of-the-file"
    file.write_text("short")
    with pytest.raises(ConfigError, match="at least 8 characters"):
        admin_token(config)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        admin_token(config)
    with pytest.raises(ConfigError, match="No such file"):
        admin_token(GatewayConfig(admin_token_file=str(tmp_path / "none")))


def test_without_replicas_a_token_is_enough_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are added by operators then, and slots may name them beforehand."""
    monkeypatch.setenv("TAO_ADMIN_TOKEN", TOKEN)
    assert token_in_environment()
    config = load_config(None, operators=True, slots={"http://10.0.0.5:8000": 64})
    assert config.replicas == ()
    monkeypatch.setenv("TAO_ADMIN_TOKEN", "  ")
    assert not token_in_environment()
    with pytest.raises(ConfigError, match="no replica is named"):
        load_config(None)


def test_the_command_asks_for_the_token_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_ADMIN_TOKEN", "short")
    result = CliRunner().invoke(command, ["--port", "0"])
    assert result.exit_code == 2
    assert "at least 8 characters" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "or --admin-token-file (or TAO_ADMIN_TOKEN) to add them later"),
        (["--replicas-file", "absent.toml"], "absent.toml: cannot be read"),
        (["--replicas-dns", "nonsense"], "not an http(s) URL"),
        (["--replicas-kubernetes", "a/b"], "in no cluster"),
        (["--replica", "http://127.0.0.1:1", "--admin-token-file", "absent"], "cannot be read"),
    ],
)
def test_the_command_refuses_with_code_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(command, ["--port", "0", *arguments])
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())
