"""What the predictor learns, kept in a file while the gateway runs: loaded at the start, saved now and then and at the end.

Turns do not wait for a save: the predictor exports in small steps, and writing happens on another thread. A save that
fails is told in the log and tried again a period later. The file itself is the affair of `tao.record.learned`; this one
must not know what is learned.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from tao.policies.returns import ReturnPredictor
from tao.record.learned import check_place, clear_away, encode_learned, load_learned, write_learned


class LearnedFile:
    """The file of one predictor."""

    def __init__(self, path: Path, predictor: ReturnPredictor) -> None:
        self._path = path
        self._predictor = predictor
        self._written: bytes | None = None
        self._writing = threading.Lock()
        self._log = structlog.get_logger("tao.learned")

    def load(self) -> None:
        """Take over what the file says. Raises `OSError` where it could not be saved later."""
        check_place(self._path)
        clear_away(self._path)
        complaint = load_learned(self._path, self._predictor)
        if complaint is not None:
            self._log.warning("what was learned cannot be used", complaint=complaint)

    async def save(self) -> None:
        """Write what was learned since, if anything was. Never raises but for cancellation."""
        try:
            state = await _exported(self._predictor)
            await asyncio.to_thread(self._write, state)
        except Exception as error:  # whatever it is, turns go on, and so does the saving
            self._log.warning("what was learned could not be saved", file=str(self._path), error=str(error))

    async def save_every(self, period_seconds: float) -> None:
        """Save until cancelled."""
        while True:
            await asyncio.sleep(period_seconds)
            await self.save()

    def _write(self, state: dict[str, object]) -> None:
        with self._writing:  # a thread goes on when who waits for it is cancelled
            content = encode_learned(self._predictor.name, state)
            if content != self._written:
                write_learned(self._path, content)
                self._written = content


async def _exported(predictor: ReturnPredictor) -> dict[str, object]:
    """The state, exported step by step; everything else has its turn between two steps."""
    exporting = predictor.exporting()
    while True:
        try:
            next(exporting)
        except StopIteration as end:
            state: dict[str, object] = end.value
            return state
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def kept(path: Path, predictor: ReturnPredictor, period_seconds: float) -> AsyncIterator[LearnedFile]:
    """Load at the start of the block, save every so often, and at its end. Raises `OSError` at the start only."""
    file = LearnedFile(path, predictor)
    file.load()
    saving = asyncio.get_running_loop().create_task(file.save_every(period_seconds))
    try:
        yield file
    finally:
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        await file.save()
