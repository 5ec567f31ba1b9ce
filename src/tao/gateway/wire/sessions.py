"""Which session a request belongs to, and how its prompt continues it: claims, fingerprints and bounded
memory.

A claimed id decides where a request carries one. Otherwise a response id or a verified prompt fingerprint
does, and failing these the request is a session of its own: strangers are never merged. All tables are
bounded; a forgotten session merely starts afresh. Time is passed in. This file must not know HTTP, replicas
or policies.

Fingerprints: after each turn a session is found under the digest of its whole prompt. A request continues the
session whose prompt is its longest proper prefix. A first prompt (nothing written by the model) always opens
a session, so that many agents started with one task stay apart - but for one whose only request has come to
nothing, which an equal prompt takes up again. Among sessions with equal prompts the tool-call ids of the
answer decide, then the latest use. After a compaction the last message pairs are looked up instead.
"""

import re
from dataclasses import dataclass, field

import msgspec

from tao.core.events import TurnKind
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.hints import RequestHints, read_hints
from tao.gateway.wire.identity import Claims, IdentitySource, bounded_id, read_claims, scoped, tenant_of
from tao.gateway.wire.lines import Continuation, SessionLines
from tao.gateway.wire.prefix import TEXT_BLOCK_BYTES, PromptChain, digest, prompt_chain
from tao.gateway.wire.requests import ParsedRequest
from tao.gateway.wire.tables import RecentTable

_STORED = re.compile(r"/v1/responses/(?P<response>[^/]+)(/.*)?")

SESSIONS_MAX = 65_536
SAME_PROMPT_MAX = 64
CALL_IDS_MAX = 16


class IdentityConflictError(ValueError):
    """Explicit ids of one request contradict one another (strict identity); the message goes to the client."""


class Identity(msgspec.Struct, frozen=True):
    """Who a turn belongs to. Ids are scoped by tenant; `parent` and `group` may name sessions never seen."""

    session_id: str
    source: IdentitySource
    tenant: str
    parent: str | None = None
    group: str | None = None


class Resolution(msgspec.Struct, frozen=True):
    """The answer for one request.

    `pinned_replica` holds the response that the request continues. `conflicts` are for the log.
    `billing_line` says that the prompt carries Claude Code's changing billing line, which defeats prefix
    caches.
    """

    identity: Identity
    turn: Continuation
    hints: RequestHints
    chain: PromptChain | None
    pinned_replica: str | None = None
    conflicts: tuple[str, ...] = ()

    @property
    def billing_line(self) -> bool:
        return self.chain is not None and self.chain.billing_line


@dataclass(slots=True)
class _Record:
    """What is kept of a session; at most about 1 KiB of digests."""

    lines: SessionLines = field(default_factory=SessionLines)
    window: str = ""
    key: bytes = b""
    tail: tuple[int, bytes] = (0, b"")
    root: bytes = b""
    pair: bytes = b""
    call_ids: tuple[str, ...] = ()
    open_turns: int = 0
    answered: bool = False

    @property
    def came_to_nothing(self) -> bool:
        """No engine has ever answered it, and none is asked now: whoever asks the same again is as good as the same."""
        return not (self.answered or self.open_turns)


class SessionIndex:
    """Resolves requests to sessions. Not thread-safe; one per gateway."""

    def __init__(
        self, *, sessions_max: int = SESSIONS_MAX, idle_seconds: float = 3600.0, strict: bool = False
    ) -> None:
        self._sessions: RecentTable[_Record] = RecentTable(sessions_max, idle_seconds, self._unlink)
        self._responses: RecentTable[tuple[str, str]] = RecentTable(sessions_max, idle_seconds)
        self._prompts: dict[bytes, list[str]] = {}
        self._pairs: dict[bytes, str] = {}
        self._strict = strict
        self._opened = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: ParsedRequest, now: float) -> Resolution:
        """The session of `request` at `now` (seconds, monotonic). Raises `IdentityConflictError` when strict."""
        claims = read_claims(request)
        conflicts = claims.conflicts
        if conflicts and self._strict:
            raise IdentityConflictError(
                "the request carries contradicting session ids: " + "; ".join(conflicts)
            )
        hints = read_hints(request.headers)
        chain = prompt_chain(request) if request.dialect.generates else None
        previous = claims.previous_response
        answered = self._responses.use(f"{claims.tenant}/{previous}", now) if previous else None
        identity = self._identity(claims, chain, answered, retry=hints.retry)
        turn = self._turn(identity, claims, chain, hints, now)
        return Resolution(identity, turn, hints, chain, answered[1] if answered else None, conflicts)

    def answered(
        self,
        session_id: str,
        now: float,
        *,
        response_id: str | None,
        call_ids: tuple[str, ...] = (),
        replica: str = "",
    ) -> None:
        """Note what the engine's answer carried, so that the next request can be told by it."""
        record = self._sessions.use(session_id, now)
        if record is not None:
            record.answered = True
            record.call_ids = call_ids[:CALL_IDS_MAX] or record.call_ids
        if response_id:
            self._responses.put(f"{session_id.partition('/')[0]}/{response_id}", (session_id, replica), now)

    def ended(self, session_id: str) -> None:
        """One turn of the session is over, answered or not. To be called once for each that was resolved."""
        record = self._sessions.peek(session_id)
        if record is not None:
            record.open_turns = max(0, record.open_turns - 1)

    def replica_of(self, path: str, headers: Headers) -> str | None:
        """The replica that made the stored response that a path names; None for any other path."""
        named = _STORED.fullmatch(path)
        found = named and self._responses.peek(f"{tenant_of(headers)}/{named['response']}")
        return found[1] or None if found else None

    def forget(self, session_id: str) -> bool:
        """The session has ended; True where it was known."""
        record = self._sessions.remove(session_id)
        if record is None:
            return False
        self._unlink(session_id, record)
        return True

    def expire(self, now: float) -> int:
        """Drop what was idle for too long; how many sessions that were."""
        self._responses.expire(now)
        return self._sessions.expire(now)

    def _identity(
        self, claims: Claims, chain: PromptChain | None, answered: tuple[str, str] | None, *, retry: bool
    ) -> Identity:
        tenant = claims.tenant
        parent = scoped(tenant, claims.parent) if claims.parent else None
        group = scoped(tenant, claims.group) if claims.group else None
        if claims.ids:
            first = claims.ids[0]
            own = scoped(tenant, first.value) + (f":{bounded_id(claims.agent)}" if claims.agent else "")
            return Identity(own, first.source, tenant, parent, group)
        if answered is not None:
            return Identity(answered[0], IdentitySource.PREVIOUS_RESPONSE, tenant, parent, group)
        if chain is not None and group is not None and self._owns_group(group, chain, retry=retry):
            return Identity(group, IdentitySource.PROMPT_CACHE_KEY, tenant, parent, group)
        found = (
            None
            if chain is None
            else self._by_prompt(claims, chain, retry=retry) or self._by_pair(claims, chain)
        )
        if found is None:
            self._opened += 1
            # A client cannot claim such an id: `~` is not among the characters of a plain one.
            found = f"{tenant}/~{self._opened}"
        source = IdentitySource.ANONYMOUS if chain is None else IdentitySource.FINGERPRINT
        return Identity(found, source, tenant, parent, group)

    def _owns_group(self, group: str, chain: PromptChain, *, retry: bool) -> bool:
        """A shared cache key names the first conversation under it, as long as its prompts extend one
        another.
        """
        record = self._sessions.peek(group)
        line = None if record is None else record.lines.main
        if record is None or line is None:
            return True
        if line.shared_bytes(chain) < line.text_bytes:
            return False
        return retry or record.came_to_nothing or chain.text_bytes > line.text_bytes

    def _turn(
        self, identity: Identity, claims: Claims, chain: PromptChain | None, hints: RequestHints, now: float
    ) -> Continuation:
        record = self._sessions.use(identity.session_id, now)
        if record is not None:
            record.open_turns += 1
        if chain is None:
            return Continuation(hints.declared or TurnKind.MAIN, 0, "the prompt was not read")
        if record is None:
            record = _Record(open_turns=1)
            self._sessions.put(identity.session_id, record, now)
        declared = hints.declared
        if declared is None and hints.window:
            # Codex counts up its window when it compacts.
            declared = TurnKind.RESET if record.window not in {"", hints.window} else None
            record.window = hints.window
        if claims.previous_response:
            return Continuation(declared or TurnKind.MAIN, 0, "continues a stored response")
        turn = record.lines.place(chain, declared=declared)
        if turn.kind is not TurnKind.SIDE:
            self._link(identity, claims, record, chain)
        return turn

    def _by_prompt(self, claims: Claims, chain: PromptChain, *, retry: bool) -> str | None:
        """The session whose latest prompt is the longest proper prefix of `chain` (or equal to it, in a
        retry, also one that does not say so).
        """
        longest = len(chain.digests)
        for messages in range(longest, -1 if chain.text else 0, -1):
            mark = chain.digests[messages - 1] if messages else b""
            candidates = self._prompts.get(_index_key(claims, b"prompt", mark), ())
            fitting = [one for one in reversed(candidates) if self._fits(one, chain, messages, retry=retry)]
            if fitting:
                return next((one for one in fitting if self._made_calls(one, chain)), fitting[0])
        return None

    def _fits(self, session_id: str, chain: PromptChain, messages: int, *, retry: bool) -> bool:
        record = self._sessions.peek(session_id)
        if record is None:
            return False
        tail_bytes, tail_digest = record.tail
        if chain.text:
            start = messages * TEXT_BLOCK_BYTES
            if tail_bytes and digest(chain.text[start : start + tail_bytes]) != tail_digest:
                return False
            same = start + tail_bytes == len(chain.text)
        else:
            same = messages == len(chain.digests)
        if same:
            return retry or (record.came_to_nothing and record.root == chain.root)
        # A changing system prompt is no other agent, once the model's own words agree or its tool calls do.
        return (
            record.root == chain.root
            or bool(chain.replied and chain.replied <= messages)
            or self._made_calls(session_id, chain)
        )

    def _by_pair(self, claims: Claims, chain: PromptChain) -> str | None:
        """The session whose latest exchange stands somewhere near the end of `chain`, after another
        beginning.
        """
        for pair in reversed(chain.pairs):
            found = self._pairs.get(_index_key(claims, b"pair", pair))
            if found is not None:
                return found
        return None

    def _made_calls(self, session_id: str, chain: PromptChain) -> bool:
        record = self._sessions.peek(session_id)
        return record is not None and not set(record.call_ids).isdisjoint(chain.call_ids)

    def _link(self, identity: Identity, claims: Claims, record: _Record, chain: PromptChain) -> None:
        """Make the session findable by its latest prompt; only sessions without a claimed id need it."""
        if identity.source not in {IdentitySource.FINGERPRINT, IdentitySource.PROMPT_CACHE_KEY}:
            return
        self._unlink(identity.session_id, record)
        record.key = _index_key(claims, b"prompt", chain.digests[-1] if chain.digests else b"")
        record.tail = (len(chain.tail), digest(chain.tail))
        record.root = chain.root
        same = self._prompts.setdefault(record.key, [])
        same.append(identity.session_id)
        del same[:-SAME_PROMPT_MAX]
        if chain.pairs:
            record.pair = _index_key(claims, b"pair", chain.pairs[-1])
            self._pairs[record.pair] = identity.session_id

    def _unlink(self, session_id: str, record: _Record) -> None:
        if self._pairs.get(record.pair) == session_id:
            del self._pairs[record.pair]
        same = self._prompts.get(record.key)
        if same is not None and session_id in same:
            same.remove(session_id)
            if not same:
                del self._prompts[record.key]


def _index_key(claims: Claims, table: bytes, mark: bytes) -> bytes:
    return digest(claims.tenant.encode(), b"\0", claims.group.encode("utf-8", "replace"), b"\0", table, mark)
