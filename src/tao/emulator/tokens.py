"""The emulator's tokeniser: one token for each 4 bytes of UTF-8 of a part, the last one possibly shorter.

A part is a message header, a text, a tool call or an end mark; each is cut from its own start, so that a
conversation that extends another keeps the tokens of the shared part. A token's id is its bytes, read as a
little-endian integer (zero-padded).
It must not know messages, dialects or the engine.
"""

from __future__ import annotations

from zlib import crc32

from tao.enginemodel import Chain, Segment

BYTES_PER_TOKEN = 4
PIECE_BYTES = 64  # one KV block: prompts that differ share their content up to a block


def token_count(data: bytes) -> int:
    return -(-len(data) // BYTES_PER_TOKEN)


def pieces(data: bytes) -> list[Segment]:
    """Cut a part into segments of a chain; their keys are the bytes themselves."""
    whole = len(data) - len(data) % PIECE_BYTES
    cut: list[Segment] = [
        (data[i : i + PIECE_BYTES], PIECE_BYTES // BYTES_PER_TOKEN) for i in range(0, whole, PIECE_BYTES)
    ]
    if whole < len(data):
        rest = data[whole:]
        cut.append((rest, token_count(rest)))
    return cut


def text_token_ids(data: bytes) -> list[int]:
    return [
        int.from_bytes(data[i : i + BYTES_PER_TOKEN], "little") for i in range(0, len(data), BYTES_PER_TOKEN)
    ]


def detokenize(ids: list[int]) -> str:
    """The text of token ids; raises ValueError for an id that is no token."""
    data = bytearray()
    for token in ids:
        if not 0 <= token < 1 << 8 * BYTES_PER_TOKEN:
            raise ValueError(f"token id {token} is not in 0..{(1 << 8 * BYTES_PER_TOKEN) - 1}")
        data += token.to_bytes(BYTES_PER_TOKEN, "little").rstrip(b"\0")
    return data.decode(errors="replace")


def chain_token_ids(chain: Chain, start: int, end: int) -> list[int]:
    """Ids of the tokens [start, end) of a chain; content without text (an image) gets numbers made from its
    key.
    """
    ids: list[int] = []
    for key, first, stop in chain.slices(start, end):
        if isinstance(key, bytes):
            ids += text_token_ids(key[first * BYTES_PER_TOKEN : stop * BYTES_PER_TOKEN])
        else:
            base = crc32(repr(key).encode())
            ids += [(base + offset) & 0xFFFFFFFF for offset in range(first, stop)]
    return ids
