"""Watching an answer pass: bytes in, facts out, never a byte changed or held back.

Composes a content decoder, a framing (SSE events or one JSON document) and a dialect's reader. Observation is
bounded and never fails: what cannot be read is simply not known. It must not know sockets or sessions.
"""

from typing import Protocol

from tao.gateway.wire import lenient
from tao.gateway.wire.answers import AnswerReader, reader_for
from tao.gateway.wire.dialects import Dialect
from tao.gateway.wire.encodings import ObservedBody
from tao.gateway.wire.facts import FactsBuilder, ResponseFacts
from tao.gateway.wire.plain import PlainText, plain_text_of
from tao.gateway.wire.repeated import RepeatedEvent, repeated_event
from tao.gateway.wire.sse import SseEvent, SseParser

DOCUMENT_BYTES_MAX = 16 << 20
LEARNINGS_MAX = 4
"""So many events in a row may fail to repeat before a stream is read one by one."""
_ERROR_TEXT_BYTES = 512


class ResponseObserver(Protocol):
    """Fed every chunk of one answer, in order."""

    @property
    def output_deltas(self) -> int:
        """Pieces of output seen so far; above zero once the first token is out."""

    def feed(self, chunk: bytes) -> None:
        """Take note of the next bytes of the body."""

    def close(self) -> ResponseFacts:
        """What the answer told; to be called once, however it ended."""


def observe_response(
    dialect: Dialect, *, status: int, content_type: str = "", content_encoding: str = ""
) -> ResponseObserver:
    """The observer for an answer with these headers."""
    reader = reader_for(dialect)
    body = ObservedBody(content_encoding)
    if status >= 400:
        return _WholeAnswer(body, reader, status)
    if reader is None or body.opaque:
        return _Unobserved()
    if content_type.partition(";")[0].strip().lower() == "text/event-stream":
        return _Stream(body, reader, plain_text_of(dialect))
    return _WholeAnswer(body, reader, status)


class _Unobserved:
    """For answers that say nothing to TAO."""

    output_deltas = 0

    def feed(self, chunk: bytes) -> None:
        """Nothing to note."""

    def close(self) -> ResponseFacts:
        return ResponseFacts()


class _Stream:
    """A streamed answer: SSE events, each with one JSON object."""

    __slots__ = ("_body", "_facts", "_learnings", "_parser", "_plain_text", "_reader", "_repeated")

    def __init__(self, body: ObservedBody, reader: AnswerReader, plain_text: PlainText) -> None:
        self._body = body
        self._reader = reader
        self._plain_text = plain_text
        self._parser = SseParser()
        self._facts = FactsBuilder()
        self._repeated: RepeatedEvent | None = None
        self._learnings = LEARNINGS_MAX

    @property
    def output_deltas(self) -> int:
        return self._facts.output_deltas

    def feed(self, chunk: bytes) -> None:
        chunk = self._body.decode(chunk)
        parser = self._parser
        while chunk and self._learnings:
            if self._repeated is not None and parser.between_events:
                size = len(chunk)
                chunk = self._repeated.take(chunk, self._facts)
                if len(chunk) < size:
                    self._learnings = LEARNINGS_MAX
                    continue
            event, chunk = parser.first(chunk)
            if event is None:
                break
            self._note(event)
        if chunk:
            for event in parser.feed(chunk):
                self._note(event)

    def close(self) -> ResponseFacts:
        for event in self._parser.close():
            self._note(event)
        return self._facts.facts()

    def _note(self, event: SseEvent) -> None:
        if event.data == b"[DONE]":
            self._facts.complete = True
        elif (text := self._plain_text(event.data, self._facts)) is None:
            payload = lenient.object_or_none(event.data)
            if payload is not None:
                self._reader.event(payload, self._facts)
        elif text and self._learnings:
            self._learnings -= 1
            self._repeated = repeated_event(event, text, self._plain_text)


class _WholeAnswer:
    """An answer that is one JSON document, errors included."""

    __slots__ = ("_body", "_bytes", "_dropped", "_reader", "_status")

    output_deltas = 0

    def __init__(self, body: ObservedBody, reader: AnswerReader | None, status: int) -> None:
        self._body = body
        self._reader = reader
        self._status = status
        self._bytes = bytearray()
        self._dropped = False

    def feed(self, chunk: bytes) -> None:
        if self._dropped:
            return
        self._bytes += self._body.decode(chunk)
        if self._body.opaque or len(self._bytes) > DOCUMENT_BYTES_MAX:
            self._bytes.clear()
            self._dropped = True

    def close(self) -> ResponseFacts:
        facts = FactsBuilder()
        payload = lenient.object_or_none(self._bytes)
        if payload is not None and self._reader is not None:
            self._reader.document(payload, facts)
        if self._status >= 400:
            facts.complete = True
            facts.failed(
                self._bytes[:_ERROR_TEXT_BYTES].decode("utf-8", "replace").strip() or f"status {self._status}"
            )
        return facts.facts()
