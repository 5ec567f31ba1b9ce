"""Content codings of observed bodies: a decoded copy for the parsers, the original for the client.

Gzip and deflate are decoded incrementally and within a bound; an unknown coding, a corrupt stream or a body
that expands beyond the bound ends observation, never the pass-through. It must not know what the bytes mean.
"""

import zlib

DECODED_BYTES_MAX = 64 << 20


class ObservedBody:
    """Decodes chunks of one body. `opaque` turns true, for good, once the content cannot be read."""

    __slots__ = ("_bytes_left", "_codec", "_head", "opaque")

    def __init__(self, content_encoding: str, decoded_bytes_max: int = DECODED_BYTES_MAX) -> None:
        coding = content_encoding.strip().lower()
        self._bytes_left = decoded_bytes_max
        self._codec: zlib._Decompress | None = None
        self._head: bytes | None = b"" if coding == "deflate" else None
        self.opaque = coding not in {"", "identity", "gzip", "x-gzip", "deflate"}
        if coding in {"gzip", "x-gzip"}:
            self._codec = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    def decode(self, chunk: bytes) -> bytes:
        """The decoded bytes of `chunk`; empty once the body is opaque."""
        if self.opaque:
            return b""
        if self._head is not None:
            chunk = self._open_deflate(self._head + chunk)
        decoded = chunk if self._codec is None else self._inflate(chunk)
        self._bytes_left -= len(decoded)
        if self._bytes_left < 0:
            self.opaque = True
            return b""
        return decoded

    def _open_deflate(self, head: bytes) -> bytes:
        """Choose by the first two bytes between zlib (RFC 9110) and the raw deflate that some servers send."""
        if len(head) < 2:
            self._head = head
            return b""
        wrapped = head[0] & 0x0F == zlib.DEFLATED and (head[0] << 8 | head[1]) % 31 == 0
        self._codec = zlib.decompressobj(wbits=zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        self._head = None
        return head

    def _inflate(self, chunk: bytes) -> bytes:
        assert self._codec is not None
        try:
            return self._codec.decompress(chunk, self._bytes_left + 1)
        except zlib.error:
            self.opaque = True
            return b""


def decode_body(
    body: bytes, content_encoding: str, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> bytes | None:
    """The decoded `body`, or None where its coding is unknown, corrupt or beyond the bound."""
    observed = ObservedBody(content_encoding, decoded_bytes_max)
    decoded = observed.decode(body)
    return None if observed.opaque else decoded
