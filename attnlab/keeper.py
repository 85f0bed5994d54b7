"""Where runs are kept: in a file of SQLite or, while that cannot be used, in memory.

Nothing that happens to the file stops the measuring, and nothing is overwritten. A damaged one is set aside and a new one
begun with what can be read of it. One that is locked, full, read-only or another program's is left for memory, and `problem`
says so; where it can be used again, everything that was written meanwhile is written into it too.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnlab.database import (
    BUSY_TIMEOUT_S,
    NotOurs,
    alone,
    brief,
    connect,
    damaged,
    reading,
    salvage,
    set_aside,
)

Work = Callable[[sqlite3.Connection], Any]
COME_BACK_S = 10.0  # between two tries to use a file again


class Keeper:
    """The database at `path`, or memory in its place. `problem`: "" while all is well, else one line. `tidy` is called when
    it is back in the file. All methods may be called from any thread; hold `lock` where several belong together."""

    def __init__(self, path: Path, tidy: Callable[[], None]):
        self.path = path
        self.problem = ""
        self.lock = threading.RLock()
        self._tidy = tidy
        self._missed: deque[Work] | None = None  # what the file has missed since it was left; None while in it
        self._next_try = 0.0  # by time.monotonic: to go back into it
        self.db = self._open()

    # What the store calls

    def read(self, query: str, values: Any = ()) -> list[sqlite3.Row]:
        return self._try(lambda db: db.execute(query, values).fetchall())

    def change(self, work: Work) -> Any:
        """What `work` returns, once it has written. What is written into memory is called again with the file's connection."""
        with self.lock:
            self._come_back()
            # SQLite would write on, into a file without a name.
            if self._missed is None and not os.path.exists(self.path):
                self._leave_the_file(sqlite3.OperationalError("it was deleted"), for_good=True)
            result = self._try(work)
            if self._missed is not None:
                self._missed.append(work)
            return result

    def version(self) -> tuple[int, int, int]:
        """Another one whenever something was written, here or by another process."""
        with self.lock:
            return id(self.db), self.read("PRAGMA data_version")[0][0], self.db.total_changes

    def close(self) -> None:
        """Closes the file; what it has missed is written before, where that can be."""
        with self.lock:
            if self._next_try < math.inf:
                self._next_try = 0.0
            self._come_back()
        with self.lock, alone(self.path.parent):
            self.db.close()

    # The file, memory, and the way between them

    def _open(self) -> sqlite3.Connection:
        try:
            self.path = self.path.expanduser()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with alone(self.path.parent):
                return self._connect()
        # no access, read-only, locked, disk full, not ours; `~` of nobody; a zero byte or bytes that are no text in the name
        except (OSError, sqlite3.DatabaseError, NotOurs, RuntimeError, ValueError) as error:
            return self._in_memory(f"{self.path} cannot be used ({brief(error)})")

    def _connect(self) -> sqlite3.Connection:
        try:
            return connect(self.path)
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise
            return self._begin_anew(error)

    def _begin_anew(self, error: Exception) -> sqlite3.Connection:
        """A damaged file is kept under another name, never written to, and a new one begun with what can be read of it."""
        with contextlib.suppress(OSError, sqlite3.Error, NotOurs):
            return connect(self.path)  # another program that uses it was faster
        try:
            aside = set_aside(self.path)
            db = connect(self.path)
        except (OSError, sqlite3.Error, NotOurs):
            return self._in_memory(f"{self.path} is damaged ({brief(error)})")
        self.problem = f"{self.path} was damaged ({brief(error)}); it is kept as {aside.name}, and the history begins anew"
        try:
            with contextlib.closing(reading(aside)) as old:
                copied = salvage(old, db)
        except sqlite3.Error as full:
            db.close()
            return self._in_memory(f"{self.path} is damaged ({brief(error)}) and cannot be replaced ({brief(full)})")
        if copied:
            self.problem += f" with the {copied:,} entries that can still be read"
        return db

    def _in_memory(self, why: str, for_good: bool = False) -> sqlite3.Connection:
        self._missed = deque(maxlen=0 if for_good else None)
        self._next_try = math.inf if for_good else time.monotonic() + COME_BACK_S
        unless = "" if for_good else ", unless the file can be used again before that"
        self.problem = f"{why}; runs are kept in memory and are lost when the program ends{unless}"
        return connect(":memory:")

    def _come_back(self) -> None:
        """Into the file, with all that it has missed, where another program has let go of it or its disk has room again. What
        cannot be written yet is still missed."""
        if self._missed is None or time.monotonic() < self._next_try or not os.path.exists(self.path):
            return
        self._next_try = time.monotonic() + COME_BACK_S
        try:
            db = connect(self.path)
        except (OSError, sqlite3.Error, NotOurs):
            return
        try:
            db.execute("PRAGMA busy_timeout = 0")  # in ten seconds there is another try, and a run waits for this one
            while self._missed:
                with contextlib.suppress(sqlite3.IntegrityError):  # another program has brought the same run
                    self._missed[0](db)
                self._missed.popleft()
            db.execute(f"PRAGMA busy_timeout = {1e3 * BUSY_TIMEOUT_S:.0f}")
        except sqlite3.Error:
            db.close()
            return
        self.db.close()
        self.db, self._missed, self.problem = db, None, ""
        self._tidy()

    def _try(self, work: Work) -> Any:
        with self.lock:
            for _ in range(2):  # out of a damaged file into a new one, and out of that when the disk is full
                try:
                    return work(self.db)
                except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
                    raise  # a mistake of the caller, such as a run id used twice
                except sqlite3.DatabaseError as error:
                    self._leave_the_file(error)
            return work(self.db)

    def _leave_the_file(self, error: sqlite3.DatabaseError, for_good: bool = False) -> None:
        """The file is damaged, or the disk is full or was taken away: go on elsewhere, with what can still be read."""
        old = self.db
        if damaged(error):
            with alone(self.path.parent):
                old.close()  # first: a connection that is closed deletes the log beside the name that it was opened by
                self.db = self._begin_anew(error)
            return
        self.db = self._in_memory(f"{self.path} cannot be written any more ({brief(error)})", for_good)
        salvage(old, self.db)
        old.close()
