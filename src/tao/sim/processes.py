"""A pool of processes for long work: fresh interpreters that end when their parent does, and at once when it gives up.

Ctrl-C goes to the parent alone, which then ends them: a child that hears it by itself may be in the middle of its imports,
or go on with the next piece of work. It must not know what the work is.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from threading import Thread, current_thread, main_thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ProcessPool:
    """`submit` as of an executor; made by `process_pool`."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def submit(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Begin a piece of work as soon as a process is free; the first calls start the processes."""
        with _interrupts_held():
            return self._executor.submit(work, *arguments, **named)


@contextlib.contextmanager
def process_pool(processes: int, prepare: Callable[..., None], *arguments: object) -> Iterator[ProcessPool]:
    """A pool in which each process first calls `prepare(*arguments)`. Work that is left ends with an exception that leaves
    the block, Ctrl-C included. Raises ChildProcessError where a process was killed.
    """
    # Fresh interpreters: a fork would copy the state of whatever threads the caller has.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(processes, context, _begin, (prepare, arguments))
    others = multiprocessing.active_children()
    try:
        yield ProcessPool(executor)
    except BaseException as error:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()
        if isinstance(error, BrokenProcessPool):
            raise ChildProcessError(
                "a process ended in the middle of its work: it was killed, perhaps for want of memory"
            ) from error
        raise
    finally:
        executor.shutdown()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes that are started in here never hear of Ctrl-C, the caller does afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or the first process would start it, and that lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _interrupts_noted():
            yield
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _interrupts_noted() -> Iterator[None]:
    """Another thread's mask may let an interrupt in, which Python raises in the main one all the same: it has to wait."""
    if current_thread() is not main_thread():
        yield
        return
    noted: list[int] = []
    answer = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if answer is None else answer)
        if noted:
            signal.raise_signal(signal.SIGINT)


def _begin(prepare: Callable[..., None], arguments: tuple[object, ...]) -> None:
    Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    prepare(*arguments)


def _end_with_parent() -> None:
    """A parent that is killed tells its children nothing: they would finish their work, and then wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
