"""From configuration to sources of replicas, and to the token that operators need.

What can be found wrong at the start is refused at the start: a file of replicas that cannot be read, a DNS name with a
path of `/v1`, a cluster that this process is not in. Later the same faults are logged, and the last good list stays.
"""

import os
from pathlib import Path

from tao.gateway.config import ConfigError, GatewayConfig
from tao.gateway.sources import (
    AddressError,
    DnsNames,
    EndpointSlices,
    KubernetesAccess,
    KubernetesError,
    ReplicaFileError,
    ReplicaSource,
    WatchedFile,
    in_url,
)

TOKEN_VARIABLE = "TAO_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_CHARS_MIN = 8
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def replica_sources(config: GatewayConfig) -> list[ReplicaSource]:
    """The sources that the configuration names. Raises `ConfigError`."""
    discovery = config.discovery
    sources: list[ReplicaSource] = []
    try:
        if config.replicas_file is not None:
            file = WatchedFile(Path(config.replicas_file), discovery.file_period_seconds)
            file.read()
            sources.append(file)
        sources += [DnsNames(url, discovery.dns_period_seconds) for url in config.replicas_dns]
        for service in config.replicas_kubernetes:
            sources.append(EndpointSlices(service, kubernetes_access(config)))
    except (AddressError, KubernetesError, ReplicaFileError) as error:
        raise ConfigError(str(error)) from None
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"replicas are to be found twice in the same place: {name}")
    return sources


def kubernetes_access(config: GatewayConfig) -> KubernetesAccess:
    """As configured; in a pod, the cluster's own API server with the pod's service account. Raises `ConfigError`."""
    discovery = config.discovery
    api, token_file, ca_file = (
        discovery.kubernetes_api,
        discovery.kubernetes_token_file,
        discovery.kubernetes_ca_file,
    )
    if api is None:
        host, port = (
            os.environ.get("KUBERNETES_SERVICE_HOST"),
            os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
        )
        if not host:
            raise ConfigError(
                "--replicas-kubernetes: this process is in no cluster (KUBERNETES_SERVICE_HOST is not set); name the API "
                "server with discovery.kubernetes_api, for instance that of `kubectl proxy`: http://127.0.0.1:8001"
            )
        api = f"https://{in_url(host)}:{port}"
        token_file = token_file or str(_ACCOUNT / "token")
        ca_file = ca_file or str(_ACCOUNT / "ca.crt")
    for file in (token_file, ca_file):
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"--replicas-kubernetes: there is no file {file}")
    return KubernetesAccess(api, *(None if file is None else Path(file) for file in (token_file, ca_file)))


def token_in_environment() -> bool:
    """Whether the environment has a token for operators, good or not."""
    return bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def admin_token(config: GatewayConfig) -> str | None:
    """From the file that was named, else from the environment, else none. Raises `ConfigError`."""
    if config.admin_token_file is not None:
        try:
            token = Path(config.admin_token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"--admin-token-file {config.admin_token_file}: cannot be read: {reason}"
            ) from None
        where = config.admin_token_file
    else:
        token, where = os.environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
        if not token:
            return None
    if len(token) < TOKEN_CHARS_MIN:
        raise ConfigError(f"{where}: a token needs at least {TOKEN_CHARS_MIN} characters")
    return token
