"""Events that are one another's copies but for the text they bring: read many at once, without decoding each.

A stream mostly repeats one event, byte for byte, around another piece of text. Once that frame is known, the bytes between
are the texts: a chunk is split at the frame and its texts are decoded together. A frame is proven before it is used: with
another text in its place it must still read as a plain event with that text. It must not know dialects.
"""

import msgspec

from tao.gateway.wire.facts import FactsBuilder
from tao.gateway.wire.plain import PlainText
from tao.gateway.wire.sse import LINE_BYTES_MAX, SseEvent

_PROOF = "\0 another text"
_PROOF_BYTES = b"\\u0000 another text"
_TEXT = msgspec.json.Decoder(str)


class RepeatedEvent(msgspec.Struct, frozen=True):
    """The bytes before the text and those after it, up to the event's end."""

    before: bytes
    after: bytes

    def take(self, chunk: bytes, into: FactsBuilder) -> bytes:
        """Read the repetitions that `chunk` begins with, at the start of an event; what is left of it."""
        before, after = self.before, self.after
        if not chunk.startswith(before) or len(chunk) > LINE_BYTES_MAX:
            return chunk
        text, whole, rest = chunk[len(before) :].partition(after)
        if not whole:
            return chunk
        pieces = 1 if text else 0
        if rest.startswith(before):
            texts = rest[len(before) :].split(after + before)
            last, whole, rest = texts.pop().partition(after)
            if whole:
                texts.append(last)
            else:
                rest = before + last
            pieces += len(texts) - texts.count(b"")
            text += b"".join(texts)
        # An event that seems to end within an escape does not end there.
        if b"\\" in text and b"\\" + after in chunk:
            return chunk
        try:
            into.add_texts(_TEXT.decode(b'"%b"' % text), pieces)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return chunk
        return rest


def repeated_event(event: SseEvent, text: str, plain_text: PlainText) -> RepeatedEvent | None:
    """The frame of a plain event with this text; None where it cannot be told."""
    quoted = b'"%b"' % text.encode("utf-8", "replace")
    at = event.data.rfind(quoted)
    if at < 0:
        return None
    before, after = event.data[: at + 1], event.data[at + len(quoted) - 1 :]
    if plain_text(before + _PROOF_BYTES + after, FactsBuilder()) != _PROOF:
        return None
    named = b"event: %b\n" % event.name if event.name else b""
    return RepeatedEvent(named + b"data: " + before, after + b"\n\n")
