"""A worker process and the threads that listen to it. It may die, hang or flood; whoever listens is not blocked."""

from __future__ import annotations

import io
import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab import protocol

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
LINE_BYTES = 1 << 20  # longer lines are nonsense
FLOOD_LINES = 1_000  # not yet read by whoever listens


class WorkerProcess:
    """A worker and three threads that listen to it: its output line by line, its last words, its end.

    Puts ("line", self, line) into `inbox` for each line, the newline included, and ("line", self, None) at the end.
    It leads a process group of its own, so that what it has started ends with it. Raises OSError when it cannot start.
    """

    def __init__(self, command: Sequence[str], inbox: queue.Queue):
        search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        )
        self._inbox = inbox
        self._stdin = io.TextIOWrapper(self._popen.stdin, encoding="utf-8")
        self._last_words: deque[str] = deque(maxlen=40)
        self._exited = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"attnlab-worker-{target.__name__}", daemon=True)
            for target in (self._read, self._listen, self._await_end)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: dict[str, Any]) -> None:
        try:
            protocol.send(self._stdin, message)
        except OSError as error:  # it is gone; the end of its output says so in the inbox
            logger.debug("the worker no longer reads: %s", error)

    def end(self, grace_s: float = 0.0) -> str:
        """Closes its input, waits, kills its group. Says how it ended, in words."""
        try:
            self._stdin.close()
        except OSError as error:
            logger.debug("the worker's input was closed before: %s", error)
        ended_by_us = not (grace_s and self._exited.wait(grace_s))
        if ended_by_us:
            self._kill_group()
            self._exited.wait(5)
        for thread in self._threads:
            thread.join(1)  # it ends with the pipe it reads, unless somebody beyond the group holds that open
        code = self._popen.returncode
        if code is None:
            return "killed, but the system cannot end it"
        if ended_by_us and grace_s:
            return ": ".join(
                filter(None, [f"it closed its output and did not exit within {grace_s:g} s", self.last_line])
            )
        if code == -signal.SIGKILL:  # nothing it said before explains that
            return "signal 9, killed"
        how = f"signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit code {code}"
        return ": ".join(filter(None, [how, self.last_line]))

    @property
    def last_line(self) -> str:
        """The last line on stderr that says something."""
        return next((line[:300] for line in reversed(list(self._last_words)) if line), "")

    def _kill_group(self) -> None:
        try:
            os.killpg(self._popen.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # nobody is left in it

    def _read(self) -> None:
        with self._popen.stdout as lines:
            while line := lines.readline(LINE_BYTES):
                while self._inbox.qsize() > FLOOD_LINES and not self._exited.is_set():
                    time.sleep(0.01)  # the pipe fills up, and the worker waits: no flood fills the memory here
                self._inbox.put(("line", self, line))
        self._inbox.put(("line", self, None))

    def _listen(self) -> None:
        with self._popen.stderr as lines:
            while line := lines.readline(LINE_BYTES):
                self._last_words.append(line.decode("utf-8", "replace").strip())

    def _await_end(self) -> None:
        """What it leaves behind is killed, or it would hold the output open; what escapes that is not waited for."""
        self._popen.wait()
        self._exited.set()
        self._kill_group()
        self._threads[0].join(1)
        self._inbox.put(("line", self, None))
