"""Where replicas come from: a watched file, DNS names, Kubernetes EndpointSlices.

Each source tells whole sets of wanted replicas, again whenever they change; `tao.gateway.roster` puts the sets together.
Nothing here knows the fleet, the core or what becomes of a replica.
"""

from tao.gateway.sources.addresses import AddressError, check_address, in_url, replica_name, same_address
from tao.gateway.sources.dns import DnsNames
from tao.gateway.sources.kubernetes import EndpointSlices, KubernetesAccess, KubernetesError
from tao.gateway.sources.port import ReplicaSource, Slots, Wanted
from tao.gateway.sources.settings import Discovery
from tao.gateway.sources.watched_file import ReplicaFileError, WatchedFile

__all__ = [
    "AddressError",
    "Discovery",
    "DnsNames",
    "EndpointSlices",
    "KubernetesAccess",
    "KubernetesError",
    "ReplicaFileError",
    "ReplicaSource",
    "Slots",
    "Wanted",
    "WatchedFile",
    "check_address",
    "in_url",
    "replica_name",
    "same_address",
]
