"""Timing and memory of one replica (hardware x model), read from TOML files that name the source of each
constant.

A profile is data: it turns a batch into milliseconds by the iteration model step_ms = a(B) + b * sum_ctx
+ prefill(n, p), and knows the sizes of the engine's queues and its KV cache. The files in `profiles/`
come with the package; a user's own file has the same form.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path

import msgspec

BLOCK_TOKENS = 16

CONSTANT_MAX = 1e12
"""No constant of an engine is as large in its unit: more is a slip, and adds up to what is no number."""

PCIE_BYTES_PER_SECOND = 64e9
"""One direction of one PCIe 5.0 x16 link (the constant of AIConfigurator's H100): what KV comes back from host memory by
where nothing else is said. Replicas of several GPUs have several links; this takes them for one.
"""


class ProfileError(ValueError):
    """A profile that does not exist, cannot be read, or makes no sense; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Constants of one replica. Times in milliseconds, sizes in tokens.

    Decode: `decode_base_ms` are the points (batch size, ms) of a(B), linear between them and constant
    outside; `decode_ms_per_context_token` is b. Prefill of n tokens behind p cached ones: c0 + c1 * n +
    c2 * n * (p + n / 2), where c0 is dropped in a step that decodes as well.

    Offload: `offload_capacity_tokens` of host memory take what the cache evicts (0: none); what is asked for again is loaded
    at `offload_reload_tokens_per_second`.
    """

    name: str
    description: str
    model: str
    kv_tokens: int
    kv_bytes_per_token: int
    max_model_tokens: int
    max_running: int
    max_batched_tokens: int
    decode_base_ms: tuple[tuple[int, float], ...]
    decode_ms_per_context_token: float
    prefill_fixed_ms: float
    prefill_ms_per_token: float
    prefill_ms_per_token_squared: float
    block_tokens: int = BLOCK_TOKENS
    sources: tuple[tuple[str, str], ...] = ()
    offload_capacity_tokens: int = 0
    offload_reload_tokens_per_second: float = 0.0

    def with_offload(self, capacity_tokens: int, reload_tokens_per_second: float | None = None) -> Profile:
        """The profile with host memory behind its KV cache; 0 tokens: without. Raises ProfileError for other values.

        By default blocks come back as fast as one PCIe link carries them.
        """
        rate = (
            PCIE_BYTES_PER_SECOND / self.kv_bytes_per_token
            if reload_tokens_per_second is None
            else reload_tokens_per_second
        )
        if capacity_tokens < 0:
            raise ProfileError(f"offload.capacity_tokens must not be negative, got {capacity_tokens}")
        if not rate > 0:
            raise ProfileError(f"offload.reload_tokens_per_second must be above 0, got {rate}")
        return replace(self, offload_capacity_tokens=capacity_tokens, offload_reload_tokens_per_second=rate)

    def decode_base(self, batch: int) -> float:
        """a(B) in ms for B >= 1 decoding requests."""
        points = self.decode_base_ms
        if batch <= points[0][0]:
            return points[0][1]
        for (low, low_ms), (high, high_ms) in pairwise(points):
            if batch <= high:
                return low_ms + (high_ms - low_ms) * (batch - low) / (high - low)
        return points[-1][1]

    def prefill_ms(self, tokens: int, cached_tokens: int = 0) -> float:
        """Duration of a step that computes `tokens` behind `cached_tokens` and decodes nothing."""
        return self.prefill_fixed_ms + self.chunk_ms(tokens, cached_tokens)

    def chunk_ms(self, tokens: int, cached_tokens: int) -> float:
        """What a prefill chunk adds to a step that pays its fixed part already."""
        return self.prefill_ms_per_token * tokens + self.prefill_ms_per_token_squared * tokens * (
            cached_tokens + tokens / 2
        )


class _Memory(msgspec.Struct, forbid_unknown_fields=True):
    kv_tokens: int
    kv_bytes_per_token: int
    source: str


class _Limits(msgspec.Struct, forbid_unknown_fields=True):
    max_model_tokens: int
    source: str
    max_running: int = 256
    max_batched_tokens: int = 8192


class _Decode(msgspec.Struct, forbid_unknown_fields=True):
    base_batch: list[int]
    base_ms: list[float]
    ms_per_context_token: float
    source: str
    base_scale: float = 1.0


class _Prefill(msgspec.Struct, forbid_unknown_fields=True):
    fixed_ms: float
    ms_per_token: float
    ms_per_token_squared: float
    source: str


class _Offload(msgspec.Struct, forbid_unknown_fields=True):
    capacity_tokens: int
    reload_tokens_per_second: float | None = None
    source: str = "given by the user"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    description: str
    model: str
    memory: _Memory
    limits: _Limits
    decode: _Decode
    prefill: _Prefill
    offload: _Offload | None = None


def profile_names() -> tuple[str, ...]:
    """Names of the profiles that come with the package, sorted."""
    folder = resources.files("tao.enginemodel").joinpath("profiles")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_profile(name_or_path: str) -> Profile:
    """A profile by name, or from a TOML file when the argument has a suffix `.toml` or a folder in it.

    Raises ProfileError with the file and the key that is wrong.
    """
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(name_or_path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"profile file {path} cannot be read: {error}") from error
        return parse_profile(text, str(path))
    if name_or_path not in profile_names():
        known = ", ".join(profile_names())
        raise ProfileError(
            f"unknown profile {name_or_path!r}; known: {known}; or give the path of a .toml file"
        )
    file = resources.files("tao.enginemodel").joinpath("profiles", f"{name_or_path}.toml")
    return parse_profile(file.read_text(encoding="utf-8"), f"{name_or_path}.toml")


def parse_profile(text: str, origin: str) -> Profile:
    """Parse the TOML text of a profile; `origin` names it in errors (ProfileError)."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except RecursionError as error:
        raise ProfileError(f"profile {origin}: nested too deeply") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ProfileError(f"profile {origin}: {error}") from error
    _check(file, origin)
    decode, prefill, memory, limits = file.decode, file.prefill, file.memory, file.limits
    points = zip(decode.base_batch, decode.base_ms, strict=True)
    profile = Profile(
        name=file.name,
        description=file.description,
        model=file.model,
        kv_tokens=memory.kv_tokens,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        max_model_tokens=limits.max_model_tokens,
        max_running=limits.max_running,
        max_batched_tokens=limits.max_batched_tokens,
        decode_base_ms=tuple((batch, ms * decode.base_scale) for batch, ms in points),
        decode_ms_per_context_token=decode.ms_per_context_token,
        prefill_fixed_ms=prefill.fixed_ms,
        prefill_ms_per_token=prefill.ms_per_token,
        prefill_ms_per_token_squared=prefill.ms_per_token_squared,
        sources=tuple(
            (part, getattr(file, part).source) for part in ("memory", "limits", "decode", "prefill")
        ),
    )
    return profile if file.offload is None else _with_offload(profile, file.offload, origin)


def _with_offload(profile: Profile, offload: _Offload, origin: str) -> Profile:
    try:
        offloading = profile.with_offload(offload.capacity_tokens, offload.reload_tokens_per_second)
    except ProfileError as error:
        raise ProfileError(f"profile {origin}: {error}") from None
    return replace(offloading, sources=(*profile.sources, ("offload", offload.source)))


def _check(file: _File, origin: str) -> None:
    """Refuse values that parse but make no sense."""
    decode, prefill, memory, limits = file.decode, file.prefill, file.memory, file.limits
    if not file.name:
        raise ProfileError(f"profile {origin}: name must not be empty: tables and reports show it")
    batches = decode.base_batch
    if not batches or len(batches) != len(decode.base_ms):
        raise ProfileError(
            f"profile {origin}: decode.base_batch and decode.base_ms need the same length, at least 1"
        )
    if any(later <= earlier for earlier, later in pairwise(batches)) or batches[0] < 1:
        raise ProfileError(f"profile {origin}: decode.base_batch must rise from 1 or more, got {batches}")
    positive = {
        "memory.kv_tokens": memory.kv_tokens,
        "memory.kv_bytes_per_token": memory.kv_bytes_per_token,
        "limits.max_model_tokens": limits.max_model_tokens,
        "limits.max_running": limits.max_running,
        "limits.max_batched_tokens": limits.max_batched_tokens,
        "decode.base_scale": decode.base_scale,
        "decode.base_ms": min(decode.base_ms) if max(decode.base_ms) <= CONSTANT_MAX else max(decode.base_ms),
        "prefill.ms_per_token": prefill.ms_per_token,
    }
    not_negative = {
        "decode.ms_per_context_token": decode.ms_per_context_token,
        "prefill.fixed_ms": prefill.fixed_ms,
        "prefill.ms_per_token_squared": prefill.ms_per_token_squared,
    }
    for key, value in positive.items():
        if not 0 < value <= CONSTANT_MAX:
            raise ProfileError(
                f"profile {origin}: {key} must be above 0 and at most {CONSTANT_MAX:g}, got {value}"
            )
    for key, value in not_negative.items():
        if not 0 <= value <= CONSTANT_MAX:
            raise ProfileError(
                f"profile {origin}: {key} must not be negative, nor above {CONSTANT_MAX:g}, got {value}"
            )
    if limits.max_running > limits.max_batched_tokens:
        raise ProfileError(f"profile {origin}: limits.max_running exceeds limits.max_batched_tokens")
