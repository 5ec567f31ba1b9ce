"""Sends events to a gateway from a thread of its own: fire and forget, with a bounded queue and deadlines.

After a failure nothing is sent for a while, so that a gateway that is down costs next to nothing. An event that waited too
long is dropped: it would be taken for news. Events are idempotent, so one is sent again when a kept connection had closed.
"""

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

QUEUE_MAX = 1024
AGE_SECONDS_MAX = 5.0
PATH = "/v1/tao/tools"


class Sender:
    """A queue and the thread that empties it. Safe to use from any thread, and after a fork.

    `timeout_seconds` bounds one request; `pause_seconds` is how long nothing is sent after a failure.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout_seconds: float = 1.0,
        pause_seconds: float = 5.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is no http(s) URL; write it like http://127.0.0.1:8100")
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._path = parts.path.rstrip("/").removesuffix("/v1") + PATH
        self._headers = {**headers, "content-type": "application/json"}
        self._timeout_seconds = timeout_seconds
        self._pause_seconds = pause_seconds
        self.dropped = 0
        self._quiet_until = 0.0
        self._pid = os.getpid()
        self._queue: deque[tuple[float, Mapping[str, object]]] = deque(maxlen=QUEUE_MAX)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._sending = False

    def send(self, event: Mapping[str, object]) -> None:
        """Queue one event. Never raises and never waits; the oldest event makes room in a full queue."""
        try:
            if self._pid != os.getpid():
                self._start_over()
            with self._changed:
                self.dropped += len(self._queue) == QUEUE_MAX
                self._queue.append((time.monotonic(), event))
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="tao-tool-events", daemon=True)
                    self._thread.start()
        except Exception:  # the tool must not fail for our sake
            self.dropped += 1

    def flush(self, seconds_max: float = 1.0) -> bool:
        """Wait until all that was queued was sent or dropped; False when that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._sending), seconds_max)

    def close(self, seconds_max: float = 1.0) -> None:
        """Flush and end the thread. Events that are sent later start another one."""
        self.flush(seconds_max)
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None:
            thread.join(seconds_max)

    def _start_over(self) -> None:
        """Threads do not survive a fork, locks may be held forever, and what was queued is the parent's to send."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue.clear()
        self._thread = None
        self._sending = False

    def _run(self) -> None:
        connection: HTTPConnection | None = None
        while (due := self._next()) is not None:
            try:
                connection = self._deliver(connection, *due)
            except Exception:
                self.dropped += 1
                self._quiet_until = time.monotonic() + self._pause_seconds
                _close(connection)
                connection = None
        _close(connection)

    def _next(self) -> tuple[float, Mapping[str, object]] | None:
        """The next event, once there is one; None when the thread is to end."""
        me = threading.current_thread()
        with self._changed:
            self._sending = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._queue or self._thread is not me)
            if self._thread is not me:
                return None
            self._sending = True
            return self._queue.popleft()

    def _deliver(
        self, connection: HTTPConnection | None, queued_at: float, event: Mapping[str, object]
    ) -> HTTPConnection | None:
        now = time.monotonic()
        if now < self._quiet_until or now - queued_at > AGE_SECONDS_MAX:
            self.dropped += 1
            return connection
        body = json.dumps(event).encode()
        if connection is not None:
            with contextlib.suppress(OSError, HTTPException):
                self._post(connection, body)
                return connection
            connection.close()
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_seconds)
        try:
            self._post(connection, body)
        except BaseException:
            connection.close()
            raise
        return connection

    def _post(self, connection: HTTPConnection, body: bytes) -> None:
        connection.request("POST", self._path, body, self._headers)
        connection.getresponse().read()


def _close(connection: HTTPConnection | None) -> None:
    if connection is not None:
        connection.close()
