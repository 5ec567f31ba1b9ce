"""Makes the directory of a tiny chat model for engine tests: configuration and tokenizer, no weights.

An engine fills the weights at random (`--load-format dummy`), so answers are gibberish of the right shape.
The byte-level BPE is trained on Python's standard library, which every machine has. Run it by an interpreter
that has `tokenizers` (the engine's environment); it knows nothing of the engine itself.
"""

import argparse
import importlib
import json
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# ChatML, with tools listed in a system message and tool calls in the form that the hermes parser reads.
CHAT_TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
You may call these tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}
{%- elif message.content %}
{%- for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a model: `tiny` is for function, `small` for where cache reuse must show in time."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


SHAPES = {
    "tiny": Shape("qwen2", layers=2, hidden=128, heads=2, kv_heads=1, head_dim=64, vocabulary=2048),
    "small": Shape("qwen3", layers=8, hidden=512, heads=8, kv_heads=2, head_dim=64, vocabulary=4096),
}


def training_text(files: int = 100, characters_each: int = 20_000) -> Iterator[str]:
    """The heads of the first modules of the standard library, in order of their names."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("*.py"))[:files]:
        yield path.read_text(encoding="utf-8", errors="ignore")[:characters_each]


def train_tokenizer(vocabulary: int) -> Any:
    """A byte-level BPE of at most `vocabulary` tokens."""
    tokenizers = importlib.import_module("tokenizers")  # only the engine's environment has it

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    return tokenizer


def model_configuration(shape: Shape, context_tokens: int, vocabulary: int) -> dict[str, object]:
    """The `config.json` of the model, with weights tied and the vocabulary padded to a multiple of 64."""
    return {
        "architectures": [ARCHITECTURES[shape.architecture]],
        "model_type": shape.architecture,
        "vocab_size": -(-vocabulary // 64) * 64,
        "hidden_size": shape.hidden,
        "intermediate_size": 2 * shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": context_tokens,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "initializer_range": 0.02,
        "eos_token_id": SPECIAL_TOKENS.index("<|im_end|>"),
        "pad_token_id": SPECIAL_TOKENS.index("<|endoftext|>"),
    }


def write_json(path: Path, value: object) -> None:
    """Write `value` readably."""
    path.write_text(json.dumps(value, indent=1) + "\n")


def make_model(directory: Path, shape: Shape, context_tokens: int) -> None:
    """Write the whole model directory."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(shape.vocabulary)
    tokenizer.save(str(directory / "tokenizer.json"))
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context_tokens,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    configuration = model_configuration(shape, context_tokens, tokenizer.get_vocab_size())
    write_json(directory / "config.json", configuration)
    stop = {name: configuration[name] for name in ("eos_token_id", "pad_token_id")}
    write_json(directory / "generation_config.json", stop)


def main() -> int:
    """Parse the command line and write the model."""
    parser = argparse.ArgumentParser(description="Make a tiny random chat model.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--context-tokens", type=int, default=32_768)
    options = parser.parse_args()
    make_model(options.directory, SHAPES[options.shape], options.context_tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
