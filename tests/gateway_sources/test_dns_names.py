"""Replicas behind a DNS name: what the addresses become, and what failures do not change."""

import socket
from collections.abc import Sequence

import pytest
from gateway_kit import until

from tao.gateway.sources import AddressError, DnsNames
from tests.gateway_sources.told import following, urls

NO_SUCH_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
LATER = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


class Zone:
    """Answers lookups from a list, the last one for ever."""

    def __init__(self, *answers: Sequence[str] | OSError | UnicodeError) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("engines.local", 8000)
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, OSError | UnicodeError):
            raise answer
        return answer


def names(zone: Zone, url: str = "http://engines.local:8000") -> DnsNames:
    return DnsNames(url, 0.001, zone)


async def test_every_address_is_a_replica_whatever_the_order() -> None:
    zone = Zone(
        ["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"], ["fd00::1", "10.0.0.1", "10.0.0.2"], ["10.0.0.3"]
    )
    async with following(names(zone, "http://engines.local:8000/a/")) as sets:
        await until(lambda: len(sets) == 2)
        assert urls(*sets) == [
            ["http://10.0.0.1:8000/a", "http://10.0.0.2:8000/a", "http://[fd00::1]:8000/a"],
            ["http://10.0.0.3:8000/a"],
        ]


async def test_a_failure_leaves_the_last_addresses() -> None:
    zone = Zone(["10.0.0.1"], *[LATER] * 20, NO_SUCH_NAME, NO_SUCH_NAME, LATER, ["10.0.0.1"])
    source = names(zone)
    async with following(source) as sets:
        await until(lambda: source.problem)
        assert "engines.local cannot be resolved: Temporary failure" in str(source.problem)
        await until(lambda: zone.asked > len(zone.answers) + 2)
        assert source.problem is None
        assert urls(*sets) == [["http://10.0.0.1:8000"]]


async def test_a_name_that_cannot_be_looked_up_is_a_problem_and_no_defect() -> None:
    zone = Zone(["10.0.0.1"], UnicodeError("label too long"), ["10.0.0.2"])
    source = names(zone)
    async with following(source) as sets:
        await until(lambda: len(sets) == 2)
        assert source.problem is None
    source = names(Zone(UnicodeError("label too long")))
    async with following(source) as sets:
        await until(lambda: source.problem)
        assert source.problem == "engines.local cannot be resolved: label too long"
        assert not sets


async def test_a_name_that_is_gone_for_good_means_no_replicas() -> None:
    zone = Zone(["10.0.0.1"], NO_SUCH_NAME)
    async with following(names(zone)) as sets:
        await until(lambda: len(sets) == 2)
        assert sets[1] == ()
        assert zone.asked >= 4


async def test_a_real_lookup() -> None:
    async with following(DnsNames("http://localhost:8000", 10.0)) as sets:
        await until(lambda: sets)
        assert "http://127.0.0.1:8000" in urls(*sets)[0]


@pytest.mark.parametrize(
    "url", ["https://a:1", "a:1", "http://a:1/v1", "http://a:1?x=1", "http://a..b:1", f"http://{64 * 'a'}:1"]
)
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(AddressError):
        DnsNames(url, 1.0)
