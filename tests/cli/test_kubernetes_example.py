"""The example of a gateway in a cluster: what it says of TAO is so."""

from pathlib import Path
from typing import Any

import msgspec

from tao.cli.serve import command
from tao.gateway.config import GatewayConfig, load_config

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    msgspec.yaml.decode(text) for text in (ROOT / "examples" / "kubernetes.yaml").read_text().split("\n---\n")
]


def the(kind: str) -> dict[str, Any]:
    (found,) = [document for document in DOCUMENTS if document["kind"] == kind]
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment")["spec"]["template"]["spec"]
    return spec


def test_its_arguments_are_those_of_the_command() -> None:
    (container,) = pod()["containers"]
    assert container["command"] == ["tao", "serve"]
    options = command.make_context("tao serve", list(container["args"])).params
    config = load_config(options.pop("config_path"), **options)
    assert (config.host, config.port) == ("0.0.0.0", container["ports"][0]["containerPort"])
    (mount,) = container["volumeMounts"]
    assert config.state_file is not None
    assert Path(config.state_file).parent == Path(mount["mountPath"])
    assert container["env"][0]["name"] == "TAO_ADMIN_TOKEN"


def test_the_account_may_read_the_slices_of_the_service_and_no_more() -> None:
    account, binding = the("ServiceAccount")["metadata"], the("RoleBinding")
    assert pod()["serviceAccountName"] == account["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    role = the("Role")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    page = (ROOT / "docs" / "replicas.md").read_text()
    shown = page.split("```yaml\n")[1].split("```")[0]
    assert msgspec.yaml.decode(shown) == role


def test_turns_may_finish_before_the_pod_is_killed_and_two_never_run_at_once() -> None:
    assert pod()["terminationGracePeriodSeconds"] > GatewayConfig().timeouts.drain_seconds
    deployment = the("Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


def test_probes_are_pages_of_the_gateway() -> None:
    (container,) = pod()["containers"]
    probes = [container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")]
    assert probes == ["/readyz", "/healthz"]
    operating = (ROOT / "docs" / "operating.md").read_text()
    assert all(f"`{path}`" in operating for path in probes)
