"""What an engine calls a session, and which session it means by that.

The gateway names sessions towards engines by its own ids, which no two sessions share, behind a mark that is drawn at its
start: no client can guess such a name, and what another gateway, or this one before its restart, has named is not taken for
a session of today. Behind the mark stands a number that no two contexts share: a session that begins anew has another name,
so that what an engine tells again of its former context is not taken for the present one. A client that puts an id into the
body has the engine use that one instead; where two sessions use the same, it tells nothing of either. Bounded: the name
unused for longest goes first. It must not know HTTP or blocks.
"""

import secrets
from collections import OrderedDict
from itertools import count
from typing import Protocol

from tao.core.ids import ReplicaId, SessionId
from tao.gateway.exchange import ClientRequest
from tao.gateway.wire.requests import ParsedRequest
from tao.gateway.wire.sessions import Resolution

HEADER = b"x-session-id"
"""vLLM echoes it as the `session_id` of stored blocks; an id in the body comes before it. SGLang knows that one only."""

MARK_BYTES = 8


class SessionNamer(Protocol):
    """Names sessions towards engines."""

    def named(
        self, request: ClientRequest, replica: ReplicaId, parsed: ParsedRequest, of: Resolution
    ) -> ClientRequest:
        """The request as it goes to this replica."""


class NoNames:
    """Every replica gets what the client sent."""

    def named(
        self,
        request: ClientRequest,
        replica: ReplicaId,  # noqa: ARG002
        parsed: ParsedRequest,  # noqa: ARG002
        of: Resolution,  # noqa: ARG002
    ) -> ClientRequest:
        return request


class SessionNames:
    """Names that clients gave, by name and by session, and those that the gateway gives. `mark`: None draws one."""

    def __init__(self, names_max: int, mark: str | None = None) -> None:
        self._names_max = names_max
        self._mark = (mark or secrets.token_hex(MARK_BYTES)) + ":"
        self._session_of: OrderedDict[str, SessionId | None] = OrderedDict()
        self._name_of: dict[SessionId, str] = {}
        self._numbers = count()
        self._number_of: dict[SessionId, int] = {}

    def learn(self, name: str, session: SessionId | None) -> SessionId | None:
        """A request of this session carries this name; None: of a turn whose blocks are nobody's.

        Returns the session that had it to itself until now and has it no more.
        """
        spoiled = None
        if name not in self._session_of:
            self._session_of[name] = session
            if session is not None:
                self._name_of[session] = name
        elif self._session_of[name] != session:
            spoiled = self._session_of[name]
            self._spoil(name)
        self._session_of.move_to_end(name)
        while len(self._session_of) > self._names_max:
            self._spoil(next(iter(self._session_of)))
            self._session_of.popitem(last=False)
        return spoiled

    def session(self, name: str) -> SessionId | None:
        """Whom an engine means by a name; None where it may be several, or nobody here."""
        if not self.is_ours(name):
            return self._session_of.get(name)
        number, _, rest = name.removeprefix(self._mark).partition(":")
        session = SessionId(rest)
        return session if number == str(self._number_of.get(session)) else None

    def is_ours(self, name: str) -> bool:
        """Whether this gateway has given the name: not a client, nor another gateway or one before this."""
        return name.startswith(self._mark)

    def given(self, session: SessionId) -> str:
        """The name that the gateway gives a session, the same until `renew`."""
        number = self._number_of.get(session)
        if number is None:
            number = self._number_of[session] = next(self._numbers)
        return f"{self._mark}{number}:{session}"

    def renew(self, session: SessionId) -> None:
        """The session has ended or begins anew: its present name means nobody, and nothing is kept of it."""
        self._number_of.pop(session, None)

    def name(self, session: SessionId) -> str:
        """What engines call a session."""
        return self._name_of.get(session) or self.given(session)

    def is_clients(self, name: str) -> bool:
        """Whether a client gave this name."""
        return name in self._session_of

    def _spoil(self, name: str) -> None:
        session = self._session_of[name]
        if session is not None and self._name_of.get(session) == name:
            del self._name_of[session]
        self._session_of[name] = None
