"""`tao check`: what TAO will and will not know of an engine, in plain words, and the flag that turns on what is missing.

It reads the engine's pages and sends a few tiny requests: the same prompt twice, a stream, and one for each place where KV
events are published. It must not know how the findings are shown.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from secrets import randbits
from urllib.parse import urlsplit

from tao.engines import EngineStatus, read_slots, slots_paths
from tao.engines.kv_sources import PATHS as KV_SOURCES_PATHS
from tao.engines.kv_sources import read_sources
from tao.inspection.client import Answer, EngineClient, EngineError
from tao.inspection.kv_listening import heard_events
from tao.inspection.pages import METRICS_PATH, MODELS_PATH, models_on, status_on
from tao.inspection.texts import Prompts, completion

PROMPT_WORDS = 120
"""Of the request that is sent twice: some blocks of any engine, well under a second of work."""


class Level(StrEnum):
    """What a finding means for TAO."""

    KNOWN = "known"
    NOTE = "note"  # TAO works as well without, or nearly
    MISSING = "missing"  # TAO schedules worse without


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that TAO will or will not know. `remedy`: what turns it on; empty where nothing has to be."""

    topic: str
    level: Level
    told: str
    remedy: str = ""


@dataclass(slots=True)
class Check:
    """All findings about one engine."""

    url: str
    engine: str = "unknown"
    version: str = ""
    models: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing that matters."""
        return all(finding.level is not Level.MISSING for finding in self.findings)

    def add(self, topic: str, level: Level, told: str, remedy: str = "") -> None:
        """One more finding."""
        self.findings.append(Finding(topic, level, told, remedy))


async def check_engine(client: EngineClient, model: str | None, kv_endpoint: str | None) -> Check:
    """Look at an engine. `kv_endpoint`: where its KV events are, if it cannot be asked.

    Raises `EngineError` where it cannot be reached or names no model.
    """
    check = Check(client.base_url)
    await _health(client, check)
    page = await client.get(METRICS_PATH)
    status = status_on(page)
    check.engine = status.engine
    await _identity(client, check)
    _capacity(check, status, page)
    await _slots(client, check, len(status.ranks))
    chosen = model or (check.models[0] if check.models else None)
    if chosen is None:
        raise EngineError("the engine names no model; say which to ask for: --model NAME")
    await _cached_tokens(client, check, chosen, status)
    await _stream_usage(client, check, chosen)
    await _kv_events(client, check, chosen, kv_endpoint)
    return check


async def _health(client: EngineClient, check: Check) -> None:
    health = await client.get("/health")
    if health.status == 404:
        check.add("health", Level.NOTE, "has no /health page: /v1/models is looked at instead")
    elif health.status != 200:
        raise EngineError(f"/health answers {health.status}")
    else:
        check.add("health", Level.KNOWN, "healthy: /health answers 200")


async def _identity(client: EngineClient, check: Check) -> None:
    version = await client.get("/version")
    if version.status != 200 and check.engine == "sglang":
        version = await client.get("/server_info")
    check.version = str(version.json.get("version") or "") if version.status == 200 else ""
    check.add("engine", Level.KNOWN, f"{check.engine} {check.version}".strip())
    listed = await client.get(MODELS_PATH)
    check.models = [str(entry["id"]) for entry in models_on(listed) if entry.get("id")]
    if listed.status in {401, 403}:
        check.add(
            "models",
            Level.NOTE,
            f"/v1/models answers {listed.status}: TAO has no key of its own and takes the replica to serve any model",
        )
    elif not check.models:
        check.add("models", Level.NOTE, "/v1/models names none: the replica is taken to serve any model")
    else:
        check.add("models", Level.KNOWN, ", ".join(check.models))


def _capacity(check: Check, status: EngineStatus, page: Answer) -> None:
    if page.status != 200:
        flag = {"sglang": "SGLang: --enable-metrics"}.get(status.engine, "SGLang needs --enable-metrics")
        check.add(
            "metrics",
            Level.MISSING,
            f"/metrics answers {page.status}: capacity, load, evictions and restarts are unknown",
            f"{flag}; vLLM has the page unless --disable-log-stats is set",
        )
    elif status.engine == "unknown":
        check.add(
            "metrics", Level.MISSING, status.problems[0] if status.problems else "the page tells nothing"
        )
    else:
        check.add("metrics", Level.KNOWN, "load, preemptions and restarts are read from /metrics")
        for problem in status.problems:
            check.add("metrics", Level.NOTE, problem)
    if status.capacity_tokens is None:
        check.add(
            "capacity",
            Level.MISSING,
            "how many KV tokens fit is unknown: TAO would take the replica for boundless",
            "tao serve --capacity-tokens TOKENS",
        )
    else:
        source = {"vllm": "vllm:cache_config_info", "sglang": "sglang:max_total_num_tokens"}.get(
            status.engine, ""
        )
        check.add("capacity", Level.KNOWN, f"{status.capacity_tokens:,} KV tokens ({source})")
    if len(status.ranks) > 1:
        each = ", ".join(f"{rank.capacity_tokens or 0:,}" for rank in status.ranks)
        check.add(
            "ranks",
            Level.NOTE,
            f"{len(status.ranks)} data-parallel ranks ({each} tokens): TAO sees their sum, but a session's cache is on "
            "one rank, and the engine's own balancer chooses which",
            "start each rank as a replica of its own (vLLM: one server per rank with --data-parallel-size 1)",
        )


async def _slots(client: EngineClient, check: Check, ranks: int) -> None:
    for path in slots_paths(check.engine):
        slots = read_slots(check.engine, (await client.get(path)).json, ranks)
        if slots is not None:
            check.add(
                "slots",
                Level.KNOWN,
                f"{slots:,} requests run at once ({path.partition('?')[0]}); beyond that they wait in the engine",
                "tao serve --replica-slots engine bounds the sessions admitted to it by that",
            )
            return
    dev_mode = ", or VLLM_SERVER_DEV_MODE=1 and --replica-slots engine" if check.engine == "vllm" else ""
    check.add(
        "slots",
        Level.NOTE,
        "how many requests run at once is not told: its KV tokens alone bound what it is given",
        f"tao serve --replica-slots N (vLLM: its --max-num-seqs, SGLang: its --max-running-requests){dev_mode}",
    )


async def _cached_tokens(client: EngineClient, check: Check, model: str, before: EngineStatus) -> None:
    request = completion(model, Prompts(randbits(32)).fresh(PROMPT_WORDS), 1)
    answers = [await client.post("/v1/completions", request) for _ in range(2)]
    if answers[1].status != 200:
        told = answers[1].body[:200].decode("utf-8", "replace")
        check.add(
            "usage", Level.MISSING, f"a completion of one token is answered with {answers[1].status}: {told}"
        )
        return
    usage = answers[1].json.get("usage")
    if not isinstance(usage, dict):
        check.add(
            "usage", Level.MISSING, "answers carry no token counts: footprints are estimated from bytes"
        )
        return
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt = usage.get("prompt_tokens")
    if cached:
        check.add("cached tokens", Level.KNOWN, f"told in usage: {cached} of {prompt} the second time")
        return
    after = status_on(await client.get(METRICS_PATH))
    hits = (after.prefix_hit_tokens or 0) - (before.prefix_hit_tokens or 0)
    if hits > 0:
        check.add(
            "cached tokens",
            Level.MISSING,
            f"the second of two equal requests was served from the cache ({hits:g} tokens by the engine's own counter), "
            "but usage does not say so: TAO cannot see what is left of a session's prefix",
            "vLLM: --enable-prompt-tokens-details; SGLang: --enable-cache-report",
        )
    else:
        check.add(
            "cached tokens",
            Level.MISSING,
            "the second of two equal requests was not served from a cache, as far as the engine tells",
            "vLLM: --enable-prefix-caching and --enable-prompt-tokens-details; SGLang: --enable-cache-report and no "
            "--disable-radix-cache",
        )


async def _stream_usage(client: EngineClient, check: Check, model: str) -> None:
    try:
        stream = await client.stream("/v1/completions", completion(model, Prompts(randbits(32)).fresh(8), 2))
    except EngineError as error:
        check.add("streams", Level.MISSING, f"a stream failed: {error}")
        return
    if stream.usage is None:
        check.add(
            "streams", Level.MISSING, "streams carry no usage although it was asked for (include_usage)"
        )
    else:
        check.add(
            "streams",
            Level.KNOWN,
            "carry usage where a client asks for it (stream_options.include_usage); clients that do not ask leave TAO to "
            "count pieces",
            "tao serve --ask-usage asks on their behalf",
        )


async def _kv_events(client: EngineClient, check: Check, model: str, endpoint: str | None) -> None:
    remedy = (
        'vLLM: --kv-events-config \'{"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv-events", '
        '"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}\'; '
        'SGLang: --kv-events-config \'{"publisher": "zmq", "topic": "kv-events", '
        '"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}\''
    )
    listed = [await client.get(path) for path in KV_SOURCES_PATHS]
    endpoints = _endpoints(listed, client.base_url) if endpoint is None else [endpoint]
    if not endpoints:
        check.add(
            "KV events",
            Level.NOTE,
            f"{_not_told(listed[0])}: evictions show only when a session is back",
            f"{remedy}; where the engine cannot be asked: tao check --kv-events ENDPOINT",
        )
        return
    prompts = Prompts(randbits(32))
    heard = await heard_events(endpoints, client, lambda: completion(model, prompts.fresh(PROMPT_WORDS), 1))
    if not heard.endpoints:
        check.add(
            "KV events",
            Level.NOTE,
            f"nothing is heard from {', '.join(heard.silent)} although {_requests(heard.requests)} served: not reachable "
            "from here, or off",
            remedy,
        )
    elif heard.silent:
        check.add(
            "KV events",
            Level.NOTE,
            f"heard from {', '.join(heard.endpoints)}; not from {', '.join(heard.silent)} while "
            f"{_requests(heard.requests)} served: not reachable from here, or given none by the engine's own balancer",
            "check again; if the same ranks stay silent, look whether their ports can be reached",
        )
    else:
        check.add("KV events", Level.KNOWN, f"heard from {', '.join(heard.endpoints)}")


def _requests(count: int) -> str:
    return "a request was" if count == 1 else f"{count} requests were"


def _not_told(listed: Answer) -> str:
    if listed.status == 200:
        return f"off: {listed.path} lists none"
    return f"off, or not told: {listed.path} answers {listed.status}"


def _endpoints(listed: list[Answer], base_url: str) -> list[str]:
    """Where the engine says that its events are, as they are reached from here; each once. The first page that tells."""
    host = urlsplit(base_url).hostname or "127.0.0.1"
    for page in listed:
        sources = read_sources(page.document, host) if page.status == 200 else ()
        if sources:
            return list(dict.fromkeys(source.endpoint for source in sources))
    return []
