"""Replicas of a Kubernetes service, against a server that follows the published conventions of the API."""

from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes, Json, endpoint, fake_kubernetes, slice_of
from gateway_kit import until

from tao.gateway.sources import EndpointSlices, KubernetesAccess, KubernetesError
from tests.gateway_sources.told import following, urls

ONE, TWO, THREE = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))
PORTS = [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}]
BOTH = [{"name": "http", "port": 8000}, {"name": "quic", "port": 8000, "protocol": "UDP"}]


def source(server: FakeKubernetes, service: str = "llm/engines", **access: Any) -> EndpointSlices:
    return EndpointSlices(service, KubernetesAccess(server.url, **access), pause_seconds=0.01)


# --- what slices say ------------------------------------------------------------------------------------------------


async def test_endpoints_are_replicas_and_those_not_ready_drain() -> None:
    async with fake_kubernetes() as server:
        ready, starting = endpoint("10.0.0.1", ready=True), endpoint("10.0.0.2", ready=False, serving=False)
        leaving = endpoint("10.0.0.3", ready=False, serving=True, terminating=True)
        await server.put(slice_of("a", ready, starting))
        await server.put(slice_of("b", leaving, endpoint("10.0.0.4")))
        async with following(source(server)) as sets:
            await until(lambda: sets)
            assert urls(*sets) == [[ONE, TWO + "!", THREE + "!", "http://10.0.0.4:8000"]]


async def test_a_pod_with_two_addresses_is_one_replica_and_a_duplicate_counts_once() -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("v6", endpoint("fd00::1", "u1", ready=True), kind="IPv6"))
        await server.put(slice_of("v4", endpoint("10.0.0.1", "u1", ready=True)))
        await server.put(slice_of("v4-old", endpoint("10.0.0.1", "u1", ready=False)))
        await server.put(slice_of("v6-only", endpoint("fd00::2", "u2", ready=True), kind="IPv6"))
        async with following(source(server)) as sets:
            await until(lambda: sets)
            assert urls(*sets) == [[ONE, "http://[fd00::2]:8000"]]


@pytest.mark.parametrize(("port", "url"), [("http", ONE), ("8000", ONE), ("metrics", "http://10.0.0.1:9000")])
async def test_a_port_is_named_by_its_name_or_its_number(port: str, url: str) -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1"), ports=PORTS))
        async with following(source(server, f"llm/engines:{port}")) as sets:
            await until(lambda: sets)
            assert urls(*sets) == [[url]]


@pytest.mark.parametrize(
    ("service", "says"), [("llm/engines", "2 ports (http, metrics)"), ("llm/engines:x", "no port 'x'")]
)
async def test_ports_that_are_not_clear_are_named(service: str, says: str) -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1"), ports=PORTS))
        of = source(server, service)
        async with following(of) as sets:
            await until(lambda: of.problem)
            assert says in str(of.problem)
            assert sets == [], "it is not known which replicas there are"


async def test_an_endpoint_behind_tls_says_so_by_its_protocol() -> None:
    async with fake_kubernetes() as server:
        await server.put(
            slice_of(
                "a", endpoint("engine.example"), ports=[{"port": 8443, "appProtocol": "https"}], kind="FQDN"
            )
        )
        async with following(source(server)) as sets:
            await until(lambda: sets)
            assert urls(*sets) == [["https://engine.example:8443"]]


async def test_a_service_without_endpoints_is_an_empty_set() -> None:
    async with fake_kubernetes() as server:
        await server.put({**slice_of("a"), "endpoints": None, "ports": None})
        async with following(source(server)) as sets:
            await until(lambda: sets)
            assert sets == [()]


@pytest.mark.parametrize(
    ("service", "ports", "says"),
    [
        ("llm/engines", PORTS, "slice a has 2 ports (http, metrics); name one"),
        (
            "llm/engines:http",
            [{"name": "api", "port": 8000}],
            "slice a has no port 'http'; name one that it has (api)",
        ),
        ("llm/engines", [], "slice a has 0 ports (none)"),
        ("llm/engines:8000", BOTH, "slice a has several ports '8000'; name one by its name, of: http, quic"),
    ],
)
async def test_ports_that_become_unclear_leave_the_last_set(
    service: str, ports: list[Json], says: str, logs: list[dict[str, Any]]
) -> None:
    """Somebody adds a port to the service, or renames the one there is."""
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        await server.put(slice_of("b", endpoint("10.0.0.2")))
        of = source(server, service)
        async with following(of) as sets:
            await until(lambda: len(server.watches) == 1)
            await server.put(slice_of("a", endpoint("10.0.0.1"), ports=ports))
            await until(lambda: of.problem)
            assert says in str(of.problem)
            await server.put(slice_of("a", endpoint("10.0.0.3")))
            await until(lambda: len(sets) == 2)
            assert urls(*sets) == [[ONE, TWO], [TWO, THREE]]
            assert of.problem is None
        assert len([entry for entry in logs if entry["log_level"] == "error"]) == 1


async def test_a_service_that_loses_its_last_endpoint_has_no_replicas_whatever_its_ports() -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        of = source(server)
        async with following(of) as sets:
            await until(lambda: len(server.watches) == 1)
            await server.put(slice_of("a", ports=PORTS))
            await until(lambda: len(sets) == 2)
            assert sets[1] == ()
            assert of.problem is None


@pytest.mark.parametrize("listed", [True, False])
async def test_a_slice_that_cannot_be_read_leaves_the_last_set(listed: bool) -> None:
    """In a list, or in an event of a watch; until it is mended or deleted."""
    broken = {**slice_of("b"), "endpoints": "none"}
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        await server.put(slice_of("b", endpoint("10.0.0.2")))
        of = source(server)
        async with following(of) as sets:
            await until(lambda: len(server.watches) == 1)
            if listed:
                server.store["b"] = broken
                server.version += 5
                await server.compact()
                await server.cut_watches()
                await until(lambda: len(server.watches) == 3)
            else:
                await server.put(broken)
            await until(lambda: of.problem)
            assert "slice b: an object that is no EndpointSlice: Expected `array | null`" in str(of.problem)
            await server.put(slice_of("a", endpoint("10.0.0.1", ready=False)))
            await server.delete("b")
            await until(lambda: of.problem is None)
            assert urls(*sets) == [[ONE, TWO], [ONE + "!"]]


# --- list and watch -------------------------------------------------------------------------------------------------


async def test_changes_are_watched_from_the_version_of_the_list() -> None:
    async with fake_kubernetes(page=2) as server:
        for number in range(1, 6):
            await server.put(slice_of(f"s{number}", endpoint(f"10.0.0.{number}", ready=True)))
        async with following(source(server)) as sets:
            await until(lambda: sets)
            assert len(sets[0]) == 5, "every page was read"
            await until(lambda: server.watches == [105])
            await server.put(slice_of("s1", endpoint("10.0.0.1", ready=False, terminating=True)))
            await until(lambda: len(sets) == 2)
            assert urls(*sets)[1][0] == ONE + "!"
            await server.delete("s1")
            await until(lambda: len(sets) == 3)
            assert len(sets[2]) == 4
            await server.put(slice_of("s1", endpoint("10.0.0.9")))
            await until(lambda: len(sets) == 4)
            assert "http://10.0.0.9:8000" in urls(*sets)[3]


async def test_a_watch_that_ends_goes_on_from_where_it_was() -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        async with following(source(server)) as sets:
            await until(lambda: len(server.watches) == 1)
            await server.bookmark()
            await server.put(slice_of("a", endpoint("10.0.0.1"), endpoint("10.0.0.2")))
            await until(lambda: len(sets) == 2)
            await server.bookmark()
            await server.cut_watches()
            await until(lambda: len(server.watches) == 2)
            await server.put(slice_of("a", endpoint("10.0.0.2")))
            await until(lambda: len(sets) == 3)
            assert urls(*sets) == [[ONE], [ONE, TWO], [TWO]]
            assert server.lists == 1, "nothing was listed twice"
            assert server.watches[1] >= 103, "from the last version told"


@pytest.mark.parametrize("inside", [True, False])
async def test_a_version_that_is_gone_means_listing_afresh(inside: bool) -> None:
    """Told by a status of the answer, or by an event inside a running watch."""
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        await server.put(slice_of("b", endpoint("10.0.0.3")))
        of = source(server)
        async with following(of) as sets:
            await until(lambda: len(server.watches) == 1)
            if inside:
                await server.send_error(410)
                await server.compact()
            else:
                del server.store["b"]  # deleted while nobody could see it
                server.version += 5
                await server.compact()
                await server.cut_watches()
            await until(lambda: server.lists == 2)
            if not inside:
                await until(lambda: len(sets) == 2)
                assert urls(*sets) == [[ONE, THREE], [ONE]]
            assert of.problem is None, "this is no outage"


async def test_an_outage_leaves_the_last_set_and_is_said(logs: list[dict[str, Any]]) -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        of = source(server)
        async with following(of) as sets:
            await until(lambda: len(server.watches) == 1)
            server.fail_with = 500
            await server.cut_watches()
            await until(lambda: of.problem)
            assert "answers 500" in str(of.problem)
            assert urls(*sets) == [[ONE]]
            server.fail_with = None
            await until(lambda: of.problem is None)
            await server.put(slice_of("a", endpoint("10.0.0.2")))
            await until(lambda: len(sets) == 2)
        assert any(entry["log_level"] == "error" for entry in logs)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"type": "\xff"}', "the API server sent no JSON"),
        (b"[" * 100_000, "the API server sent no JSON"),
        (b"{", "the API server sent no JSON"),
        (b'{"type": "ADDED", "object": {}}', "an object that is no EndpointSlice"),
    ],
)
async def test_an_event_that_makes_no_sense_means_listing_afresh(
    line: bytes, says: str, logs: list[dict[str, Any]]
) -> None:
    async with fake_kubernetes() as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        of = source(server)
        async with following(of) as sets:
            await until(lambda: len(server.watches) == 1)
            await server.send_raw(line)
            await until(lambda: len(server.watches) == 2)
            await until(lambda: of.problem is None)
            assert urls(*sets) == [[ONE]]
        (told,) = (entry for entry in logs if entry["log_level"] == "error")
        assert says in told["problem"]


async def test_the_token_is_read_anew_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with fake_kubernetes(token="second") as server:
        await server.put(slice_of("a", endpoint("10.0.0.1")))
        of = source(server, token_file=token)
        async with following(of) as sets:
            await until(lambda: of.problem)
            assert "needs get, list and watch" in str(of.problem)
            _write(token, "second\n")
            await until(lambda: sets)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_nobody_there_and_no_token_are_outages_too(tmp_path: Path) -> None:
    nowhere = EndpointSlices("llm/engines", KubernetesAccess("http://127.0.0.1:1"), pause_seconds=0.01)
    without = EndpointSlices(
        "llm/engines", KubernetesAccess("http://127.0.0.1:1", tmp_path / "none"), pause_seconds=0.01
    )
    async with following(nowhere) as sets, following(without):
        await until(lambda: nowhere.problem and without.problem)
        assert "none: No such file" in str(without.problem)
        assert sets == []


@pytest.mark.parametrize("service", ["", "engines", "/engines", "llm/", "a/b/c", "llm/engines:"])
def test_ill_formed_services_are_refused(service: str) -> None:
    with pytest.raises(KubernetesError, match="NAMESPACE/SERVICE"):
        EndpointSlices(service, KubernetesAccess("http://127.0.0.1:1"))
