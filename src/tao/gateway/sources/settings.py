"""The section `[discovery]` of the gateway's configuration."""

import msgspec


class Discovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How replicas are found that are not named one by one.

    `removal_seconds_max`: how long a replica that is no longer wanted may take to finish its running turns; then it is
    forgotten all the same. `kubernetes_api`: the API server's URL, in a cluster found by itself; likewise the token and
    the certificates of the service account.
    """

    file_period_seconds: float = 1.0
    dns_period_seconds: float = 5.0
    removal_seconds_max: float = 600.0
    kubernetes_api: str | None = None
    kubernetes_token_file: str | None = None
    kubernetes_ca_file: str | None = None
