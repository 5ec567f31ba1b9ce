"""A request inside the engine: what the engine keeps about it while it waits or runs.

Mutable, owned by the engine; it decides nothing.
"""

from __future__ import annotations

from tao.enginemodel.chain import Chain
from tao.enginemodel.messages import Request
from tao.enginemodel.prefix_cache import Run


class Live:
    """A request inside the engine; mutable, owned by the engine."""

    __slots__ = (
        "cached_tokens",
        "chain",
        "computed",
        "generated",
        "joined_at",
        "output_tokens",
        "prompt_tokens",
        "reloaded_tokens",
        "request",
        "run",
        "target",
        "ticket",
    )

    def __init__(self, request: Request, chain: Chain, root: Run) -> None:
        self.request = request
        self.chain = chain  # prompt and output
        self.prompt_tokens = request.prompt.tokens
        self.output_tokens = request.output_tokens
        self.generated = 0  # tokens generated; while decoding: when it joined the group
        self.joined_at = 0  # decode clock
        self.ticket = 0  # entry in the group's heap; 0: not decoding
        self.target = 0  # tokens to compute before the next token can be generated
        self.computed = 0  # tokens computed or being computed in the current step, while prefilling
        self.reloaded_tokens = 0  # of `computed`, loaded from host memory at the last admission
        self.run = root  # deepest cached run it pins
        self.cached_tokens = -1  # found at the first admission; -1: never admitted
