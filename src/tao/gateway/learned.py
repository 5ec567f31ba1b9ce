"""What the predictor learns, kept in a file while the gateway runs: loaded at the start, saved now and then and at the end.

Saving happens on another thread, so that turns do not wait for it; a save that fails is told in the log and tried again a
period later. The file itself is the affair of `tao.record.learned`. It must not know what is learned.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from tao.policies.returns import ReturnPredictor
from tao.record.learned import check_place, encode_learned, load_learned, write_learned


class LearnedFile:
    """The file of one predictor."""

    def __init__(self, path: Path, predictor: ReturnPredictor) -> None:
        self._path = path
        self._predictor = predictor
        self._written: bytes | None = None
        self._saving = threading.Lock()
        self._log = structlog.get_logger("tao.learned")

    def load(self) -> None:
        """Take over what the file says. Raises `OSError` where it could not be saved later."""
        check_place(self._path)
        complaint = load_learned(self._path, self._predictor)
        if complaint is not None:
            self._log.warning("what was learned cannot be used", complaint=complaint)

    def save(self) -> None:
        """Write what was learned since, if anything was; called from a thread too: predictors allow it. Never raises."""
        try:
            with self._saving:
                content = encode_learned(self._predictor)
                if content != self._written:
                    write_learned(self._path, content)
                    self._written = content
        except Exception as error:  # whatever it is, turns go on, and so does the saving
            self._log.warning("what was learned could not be saved", file=str(self._path), error=str(error))

    async def save_every(self, period_seconds: float) -> None:
        """Save until cancelled, on another thread."""
        while True:
            await asyncio.sleep(period_seconds)
            await asyncio.to_thread(self.save)


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
        await asyncio.to_thread(file.save)
