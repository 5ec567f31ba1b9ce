"""One emulated replica: the engine model behind the HTTP surface of vLLM, in real time times a speed.

`start_emulator(EmulatorConfig(profile=...))` embeds it; `tao emulate` runs it as a process. It speaks the
OpenAI and Anthropic dialects with vLLM's usage figures, metrics page and KV events. It must not know the
scheduler or the gateway.
"""

from tao.emulator.handle import Emulator, start_emulator
from tao.emulator.script import Script, ScriptError, load_script, parse_script
from tao.emulator.service import EmulatorConfig

__all__ = [
    "Emulator",
    "EmulatorConfig",
    "Script",
    "ScriptError",
    "load_script",
    "parse_script",
    "start_emulator",
]
