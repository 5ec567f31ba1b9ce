"""Who sent a request: the session ids that a client puts into headers and bodies, in order of precedence.

The order is explicit TAO and ThunderAgent body ids, headers of known clients, generic session headers, body
keys. Ids are scoped by tenant (a hash of the API key, which is never stored) and bounded in length. Ids that
identify people (`user`, `safety_identifier`) are not used. This file reads one request; what needs memory of
earlier ones (prompt fingerprints, response ids) is in `sessions`.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from hashlib import blake2b

import msgspec

from tao.gateway.wire import lenient
from tao.gateway.wire.headers import Headers
from tao.gateway.wire.lenient import JsonObject
from tao.gateway.wire.requests import ParsedRequest

RESPONSE_ID_CHARS_MAX = 256
PUBLIC_TENANT = "public"

_SAFE_ID = re.compile(r"[A-Za-z0-9._@+=,:|-]{1,128}")
_CLAUDE_USER = re.compile(r"_session_([0-9A-Za-z-]{8,64})\Z")
_CREDENTIAL_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_CLIENT_HEADERS = ("thread-id", "session-id", "session_id", "x-opencode-session", "x-session-affinity")
_GENERIC_HEADERS = (
    "x-session-id",
    "x-dynamo-session-id",
    "x-smg-routing-key",
    "x-litellm-session-id",
    "x-aibrix-session-key",
    "x-affinity",
)
_PARENT_HEADERS = ("x-codex-parent-thread-id", "x-parent-session-id", "x-dynamo-parent-session-id")
_NATIVE_NAMES = frozenset({"x-claude-code-session-id", *_CLIENT_HEADERS})
_GENERIC_NAMES = frozenset(_GENERIC_HEADERS)
# What a body must hold to be worth a closer look; most requests carry their ids in headers, or none.
_EXPLICIT_KEYS = frozenset(
    {"program_id", "session_id", "extra_body", "vllm_xargs", "nvext", "session_params"}
)
_BODY_KEYS = frozenset({"metadata", "conversation"})
_CREDENTIAL_NAMES = frozenset(_CREDENTIAL_HEADERS)
_PARENT_NAMES = frozenset(_PARENT_HEADERS)


class IdentitySource(StrEnum):
    """Where a session id came from, strongest first."""

    BODY_EXPLICIT = "body-explicit"
    CLIENT_HEADER = "client-header"
    GENERIC_HEADER = "generic-header"
    BODY_KEY = "body-key"
    PREVIOUS_RESPONSE = "previous-response"
    PROMPT_CACHE_KEY = "prompt-cache-key"
    FINGERPRINT = "fingerprint"
    ANONYMOUS = "anonymous"


class Claim(msgspec.Struct, frozen=True):
    """One id that a request carries, the field it stands in, and how strong that field is."""

    source: IdentitySource
    field: str
    value: str


class Claims(msgspec.Struct, frozen=True):
    """All that one request says of its identity.

    `ids` are in order of precedence. `agent` names a lineage of its own within the session (a sub-agent of
    Claude Code). `parent` and `group` are unscoped ids; `group` is a shared cache key, never an identity by
    itself.
    """

    tenant: str
    ids: tuple[Claim, ...]
    agent: str
    parent: str
    group: str
    previous_response: str

    @property
    def conflicts(self) -> tuple[str, ...]:
        """One phrase for each explicit id that contradicts the first one; for logs and refusals."""
        first = self.ids[0] if self.ids else None
        return tuple(
            f"{claim.field}={bounded_id(claim.value)} differs from {first.field}={bounded_id(first.value)}"
            for claim in self.ids[1:]
            if first is not None
            and claim.source is not IdentitySource.BODY_KEY
            and claim.value != first.value
        )


def read_claims(request: ParsedRequest) -> Claims:
    """All ids in `request`, none of them trusted for more than telling sessions of one tenant apart."""
    headers, body = request.headers, request.body
    ids = [] if _EXPLICIT_KEYS.isdisjoint(body) else list(_explicit(body))
    native, agent, parent = ([], "", "") if headers.isdisjoint(_NATIVE_NAMES) else _native(headers)
    ids += native
    if not headers.isdisjoint(_GENERIC_NAMES):
        ids += _from_headers(headers, _GENERIC_HEADERS, IdentitySource.GENERIC_HEADER)
    if not _BODY_KEYS.isdisjoint(body):
        ids += [claim for claim in _body_keys(body) if claim.value]
    group = lenient.text(body, "prompt_cache_key") or headers.get("session-id") or headers.get("session_id")
    if not parent and not headers.isdisjoint(_PARENT_NAMES):
        parent = _first(headers, _PARENT_HEADERS)
    if not parent and "vllm_xargs" in body:
        parent = lenient.text(_context(body), "parent_program_id") or ""
    if not parent and group and "x-litellm-session-id" in headers and ids and ids[0].value != group:
        # OpenHands gives a delegated sub-agent its parent's cache key.
        parent = group
    if parent and ids and parent == ids[0].value and not agent:
        parent = ""
    return Claims(tenant_of(headers), tuple(ids), agent, parent, group, _previous_response(body))


def tenant_of(headers: Headers) -> str:
    """A short stable name for the caller's credential; `PUBLIC_TENANT` where there is none."""
    for name in () if headers.isdisjoint(_CREDENTIAL_NAMES) else _CREDENTIAL_HEADERS:
        value = headers.get(name)
        if value:
            return blake2b(value.encode("latin-1"), digest_size=6, person=b"tao-tenant").hexdigest()
    return PUBLIC_TENANT


def bounded_id(value: str) -> str:
    """`value` where it is short and plain, else a digest of it: ids go into logs, headers and metrics."""
    if _SAFE_ID.fullmatch(value):
        return value
    return "x" + blake2b(value.encode("utf-8", "replace"), digest_size=12).hexdigest()


def scoped(tenant: str, value: str) -> str:
    """The session id for a client's own id `value`."""
    return f"{tenant}/{bounded_id(value)}"


def _explicit(body: JsonObject) -> Iterator[Claim]:
    places: tuple[tuple[str, JsonObject, tuple[str, ...]], ...] = (
        ("", body, ("program_id",)),
        ("extra_body.", lenient.child(body, "extra_body"), ("program_id",)),
        ("vllm_xargs.agentic_context.", _context(body), ("program_id", "session_id")),
        ("vllm_xargs.", lenient.child(body, "vllm_xargs"), ("session_id",)),
        (
            "nvext.agent_context.",
            lenient.child(lenient.child(body, "nvext"), "agent_context"),
            ("session_id", "trajectory_id"),
        ),
        ("session_params.", lenient.child(body, "session_params"), ("session_id",)),
        ("", body, ("session_id",)),
    )
    for prefix, holder, keys in places:
        # Within one object the keys are alternatives, not contradictions: a trajectory belongs to a session.
        for key in keys:
            value = lenient.text(holder, key)
            if value:
                yield Claim(IdentitySource.BODY_EXPLICIT, prefix + key, value)
                break


def _native(headers: Headers) -> tuple[list[Claim], str, str]:
    """Ids of known clients: (claims, agent, parent)."""
    claims: list[Claim] = []
    agent = parent = ""
    session = headers.get("x-claude-code-session-id")
    if session:
        claims.append(Claim(IdentitySource.CLIENT_HEADER, "x-claude-code-session-id", session))
        agent = headers.get("x-claude-code-agent-id")
        outer = headers.get("x-claude-code-parent-agent-id")
        parent = (f"{session}:{outer}" if outer else session) if agent else ""
    names = list(_CLIENT_HEADERS)
    if headers.get("thread-id"):
        # In Codex the thread is the conversation; the session id is shared by all threads that it spawned.
        names.remove("session-id")
        names.remove("session_id")
    claims += _from_headers(headers, names, IdentitySource.CLIENT_HEADER)
    return claims, agent, parent


def _from_headers(
    headers: Headers, names: tuple[str, ...] | list[str], source: IdentitySource
) -> list[Claim]:
    return [Claim(source, name, value) for name in names if (value := headers.get(name))]


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := headers.get(name))), "")


def _body_keys(body: JsonObject) -> Iterator[Claim]:
    metadata = lenient.child(body, "metadata")
    source = IdentitySource.BODY_KEY
    yield Claim(source, "metadata.user_id", _claude_session(lenient.text(metadata, "user_id") or ""))
    yield Claim(source, "metadata.session_id", lenient.text(metadata, "session_id") or "")
    conversation = lenient.text(body, "conversation") or lenient.text(
        lenient.child(body, "conversation"), "id"
    )
    yield Claim(source, "conversation", conversation or "")


def _claude_session(user_id: str) -> str:
    """The session within Claude Code's `user_id`: a JSON object, or a text that ends in `_session_<uuid>`."""
    if user_id.startswith("{"):
        document = lenient.object_or_none(user_id.encode("utf-8", "replace"))
        return (lenient.text(document, "session_id") or "") if document is not None else ""
    match = _CLAUDE_USER.search(user_id[-80:])
    return match[1] if match else ""


def _context(body: JsonObject) -> JsonObject:
    return lenient.child(lenient.child(body, "vllm_xargs"), "agentic_context")


def _previous_response(body: JsonObject) -> str:
    value = lenient.text(body, "previous_response_id") or ""
    return value if len(value) <= RESPONSE_ID_CHARS_MAX else ""
