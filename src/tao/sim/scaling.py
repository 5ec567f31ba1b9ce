"""A profile with other constants: what if the engine were slower or faster than the profile says."""

from dataclasses import replace

from tao.enginemodel import Profile


def scaled(profile: Profile, *, decode: float = 1.0, prefill: float = 1.0) -> Profile:
    """The profile with the times of decoding and of prefilling multiplied; the name says so."""
    if decode == prefill == 1.0:
        return profile
    return replace(
        profile,
        name=f"{profile.name} (decode x{decode:g}, prefill x{prefill:g})",
        decode_base_ms=tuple((batch, ms * decode) for batch, ms in profile.decode_base_ms),
        decode_ms_per_context_token=profile.decode_ms_per_context_token * decode,
        prefill_fixed_ms=profile.prefill_fixed_ms * prefill,
        prefill_ms_per_token=profile.prefill_ms_per_token * prefill,
        prefill_ms_per_token_squared=profile.prefill_ms_per_token_squared * prefill,
    )
