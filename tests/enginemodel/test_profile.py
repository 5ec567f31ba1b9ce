"""Profiles: the constants of the packaged ones, the iteration formula, errors that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tao.enginemodel import ProfileError, load_profile, profile_names
from tao.enginemodel.profile import parse_profile

QWEN = "qwen3-32b-tp2-h100"
GLM = "glm-4.7-tp8-h100"
FLASH = "deepseek-v4-flash-tp4-h100"
SMALL = "cpu-small"
FILE = Path(__file__).parents[2] / "src/tao/enginemodel/profiles" / f"{QWEN}.toml"


def test_packaged_profiles_and_their_capacities() -> None:
    assert profile_names() == (SMALL, FLASH, GLM, QWEN)
    capacities = [load_profile(name).kv_tokens for name in (QWEN, GLM, FLASH, SMALL)]
    assert capacities == [320_000, 1_000_000, 4_000_000, 4_096]
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert len(profile.sources) == 4
        assert all(text for _, text in profile.sources)


def test_cold_prefill_of_8000_tokens() -> None:
    # The formula's own values, as stated in the profile files.
    assert load_profile(QWEN).prefill_ms(8000) == pytest.approx(417, abs=1)
    assert load_profile(GLM).prefill_ms(8000) == pytest.approx(348, abs=1)
    assert load_profile(FLASH).prefill_ms(8000) == pytest.approx(264, abs=1)


def test_warm_append_of_700_tokens_at_40k() -> None:
    assert load_profile(QWEN).prefill_ms(700, 40_000) == pytest.approx(89, abs=1)
    assert load_profile(GLM).prefill_ms(700, 40_000) == pytest.approx(75, abs=1)
    assert load_profile(FLASH).prefill_ms(700, 40_000) == pytest.approx(50, abs=1)


def test_decode_base_is_linear_between_points_and_constant_outside() -> None:
    profile = load_profile(QWEN)
    assert profile.decode_base(1) == 13.5
    assert profile.decode_base(24) == pytest.approx((14.8 + 14.7) / 2)
    assert profile.decode_base(256) == profile.decode_base(500) == 19.6
    assert load_profile(GLM).decode_base(1) == pytest.approx(9.6 * 1.4)


def test_own_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(FILE.read_text().replace('name = "qwen3-32b-tp2-h100"', 'name = "own"'))
    assert load_profile(str(path)).name == "own"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fixed_ms = 12.3", "fixed_ms = 'fast'", r"Expected `float`, got `str` - at `\$.prefill.fixed_ms`"),
        ("fixed_ms = 12.3", "", "missing required field `fixed_ms`"),
        ("fixed_ms = 12.3", "fixed_ms = -1.0", "prefill.fixed_ms must not be negative"),
        ("fixed_ms = 12.3", "fixed_ms = nan", "prefill.fixed_ms must not be negative"),
        ("fixed_ms = 12.3", "fixed_ms = 1e308", "prefill.fixed_ms must not be negative, nor above 1e"),
        ("kv_tokens = 320_000", f"kv_tokens = {10**20}", "memory.kv_tokens must be above 0 and at most 1e"),
        ("16.5, 19.6]", "16.5, inf]", "decode.base_ms must be above 0 and at most"),
        ('name = "qwen3-32b-tp2-h100"', 'name = ""', "name must not be empty"),
        ("[memory]", f"a = {'[' * 5000}", "nested too deeply"),
        ("fixed_ms", "fixedms", "unknown field `fixedms`"),
        ("kv_tokens = 320_000", "kv_tokens = 0", "memory.kv_tokens must be above 0"),
        ("[1, 8, 16", "[8, 1, 16", "decode.base_batch must rise"),
        ("[1, 8, 16", "[8, 16", "need the same length"),
        ("max_running = 256", "max_running = 9000", "exceeds limits.max_batched_tokens"),
        ("[memory]", "[memory", "own.toml"),
    ],
)
def test_errors_name_the_key(old: str, new: str, message: str) -> None:
    text = FILE.read_text()
    assert old in text
    with pytest.raises(ProfileError, match=message):
        parse_profile(text.replace(old, new), "own.toml")


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(FILE.read_text(), encoding="utf-8-sig")
    assert load_profile(str(path)) == load_profile(str(FILE))


def test_unknown_names_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="unknown profile 'nope'; known: cpu-small, deepseek"):
        load_profile("nope")
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(tmp_path / "none.toml"))
