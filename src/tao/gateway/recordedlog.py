"""The log of a run while the gateway runs: what its writer keeps back is handed to the operating system every second, so
that a gateway that is killed loses about a second of it.

One short write at a time, on the event loop: at most what the writer keeps back. That a disk is full is told once. It must
not know what is written.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from tao.record.log import LogWriter

PERIOD_SECONDS = 1.0


async def flush_every(log: LogWriter, period_seconds: float) -> None:
    """Until cancelled. Never raises but for cancellation."""
    told = False
    while True:
        await asyncio.sleep(period_seconds)
        try:
            log.flush()
            told = False
        except OSError as error:
            if not told:
                _say(error)
            told = True


@contextlib.asynccontextmanager
async def flushed(log: LogWriter, period_seconds: float = PERIOD_SECONDS) -> AsyncIterator[LogWriter]:
    """Flush while the block runs, and close the log at its end. Never raises: a shutdown goes on."""
    flushing = asyncio.get_running_loop().create_task(flush_every(log, period_seconds))
    try:
        yield log
    finally:
        flushing.cancel()
        await asyncio.gather(flushing, return_exceptions=True)
        try:
            log.close()
        except OSError as error:
            _say(error)


def _say(error: OSError) -> None:
    structlog.get_logger("tao.record").error("the log is not complete", error=error.strerror or str(error))
