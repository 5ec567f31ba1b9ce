"""A fit as the text of a profile, in the form that the emulator and the simulator read.

Where each number is from stands beside it, also where it is only a usual value. It must not know how it was measured.
"""

from tao import __version__
from tao.inspection.fit import Fit

RUNNING_MAX = 256
BATCHED_TOKENS_MAX = 8192


def profile_text(
    fit: Fit, name: str, *, running_max: int | None = None, batched_tokens_max: int | None = None
) -> str:
    """TOML. What was not measured and not given is a usual value, and says so."""
    running = running_max or fit.running_max or RUNNING_MAX
    batched = max(batched_tokens_max or BATCHED_TOKENS_MAX, running)
    how_running = "given" if running_max else "measured" if fit.running_max else "not measured"
    how_batched = "given" if batched_tokens_max else "not measured"
    terms = fit.prefill
    lengths = ", ".join(str(point.tokens) for point in fit.prefill_points)
    batches = ", ".join(str(batch) for batch, _ in fit.decode_base_ms)
    base_ms = ", ".join(f"{ms:.4g}" for _, ms in fit.decode_base_ms)
    return f"""\
# Fitted by tao profile fit {__version__}: {fit.tokens_sent:,} tokens in {fit.seconds:.0f} s, nothing else on the engine.
name = {_quoted(name)}
description = {_quoted(f"{fit.model} on {fit.engine}, fitted to one replica")}
model = {_quoted(fit.model)}

[memory]
kv_tokens = {fit.kv_tokens}
kv_bytes_per_token = 1         # not known, and no time depends on it
source = "KV capacity as the engine tells it, or as given"

[limits]
max_model_tokens = {fit.max_model_tokens}
max_running = {running}
max_batched_tokens = {batched}
source = "max_model_tokens: /v1/models; max_running: {how_running}; max_batched_tokens: {how_batched}"

[decode]
base_batch = [{batches}]
base_ms = [{base_ms}]
ms_per_context_token = {fit.decode_ms_per_context_token:.4g}
source = "time between tokens of so many streams at once; context: what the longest prompt adds"

[prefill]
fixed_ms = {terms.fixed_ms:.4g}
ms_per_token = {terms.ms_per_token:.4g}
ms_per_token_squared = {terms.ms_per_token_squared:.4g}
source = "time to the first token of fresh prompts of {lengths} tokens; largest error {100 * terms.error:.1f} %"
"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'").replace("\n", " ") + '"'
