"""The database file: opened or refused before anything is written to it, checked, set aside when it is damaged.

A file is written to when it is empty, or was written by this version or an older one, and passes SQLite's integrity check
(0.6 ms a MB). An older one is brought up to date, step by step and all or nothing; a program of the older version that has
it open goes on. One of a newer version, or of another program, stays as it is. Of a damaged one nothing is overwritten: it
gets another name, and what can still be read of it is copied into its successor.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIRST_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    seconds REAL NOT NULL,
    phase TEXT NOT NULL,
    sweep TEXT NOT NULL,       -- JSON
    question TEXT NOT NULL,    -- the problem without its sequence lengths, canonical JSON
    device TEXT,               -- JSON, once it is known
    device_key TEXT,
    owner TEXT NOT NULL        -- JSON: the process that measures it
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs(id),
    at REAL NOT NULL,          -- Unix time, s
    kind TEXT NOT NULL,
    data TEXT NOT NULL         -- JSON
);
CREATE TABLE devices (worker TEXT PRIMARY KEY, device TEXT NOT NULL, paths TEXT NOT NULL);
CREATE INDEX events_by_run ON events(run_id);
CREATE INDEX runs_by_question ON runs(question, device_key, state);
"""
STEPS = (  # what leads from version n to version n + 1, the first of them from an empty file
    FIRST_SCHEMA,
    """
-- deleted: Unix time, s, since when the run is hidden. imported: 1 when it came as a file. sentence, and points as JSON: what
-- the list says of a run that has ended, NULL until it is asked.
ALTER TABLE runs ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN deleted REAL;
ALTER TABLE runs ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN sentence TEXT;
ALTER TABLE runs ADD COLUMN points TEXT;
""",
)
SCHEMA_VERSION = len(STEPS)
TABLES = ("runs", "events", "devices")
BUSY_TIMEOUT_S = 3.0  # whoever waits for a page waits for this
POLL_S = 0.02
BRIEF = 200  # characters
PARTS = ("", "-wal", "-shm")  # a database in WAL mode is up to three files


class NotOurs(Exception):
    """The file was written by a newer AttnLab or by another program. The message says which."""


class Cursor(sqlite3.Cursor):
    """Names of columns, and SQLite's own words about a damaged file, can hold bytes that are no text, and a length in it can
    ask for any memory: damage too."""

    def execute(self, *arguments: Any) -> Cursor:
        with damage_told():
            return super().execute(*arguments)

    def fetchone(self) -> Any:
        with damage_told():
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with damage_told():
            return super().fetchall()

    def __next__(self) -> Any:
        with damage_told():
            return super().__next__()


class Connection(sqlite3.Connection):
    def cursor(self) -> Cursor:
        return super().cursor(Cursor)

    def execute(self, *arguments: Any) -> Cursor:
        return self.cursor().execute(*arguments)


@contextlib.contextmanager
def damage_told() -> Iterator[None]:
    try:
        yield
    except (UnicodeDecodeError, MemoryError) as error:
        raise sqlite3.DatabaseError(str(error) or "it asks for more memory than there is") from error


def connect(path: Path | str) -> sqlite3.Connection:
    """An open database with the schema in place, whole by SQLite's own check; a statement waits BUSY_TIMEOUT_S for the lock of
    another program. Raises sqlite3.Error and NotOurs.

    Autocommit: each statement is committed when it returns. In WAL mode with synchronous = NORMAL a commit survives the
    death of the process; the loss of power may cost the last few.
    """
    db = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, check_same_thread=False, isolation_level=None, factory=Connection
    )
    try:
        db.row_factory = sqlite3.Row
        db.text_factory = readable_text
        version = recognise(db)  # before the first statement that writes, and the journal's mode is one
        if 0 < version < SCHEMA_VERSION:
            check(db, version)  # as it was, before it is changed
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        if version < SCHEMA_VERSION:
            upgrade(db)
        check(db)
    except BaseException:
        db.close()
        raise
    return db


def recognise(db: sqlite3.Connection) -> int:
    """The version of the file's schema, 0 for an empty file. Raises NotOurs."""
    version, tables = db.execute(
        "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"  # one statement, one moment
    ).fetchone()
    if version > SCHEMA_VERSION:
        raise NotOurs(f"schema {version} was written by a newer AttnLab; this one knows {SCHEMA_VERSION}")
    if version == 0 and tables:
        raise NotOurs("it is a database of another program")
    return version


def upgrade(db: sqlite3.Connection) -> None:
    """Brings an empty or older file to this version, in one transaction."""
    with transaction(db):
        for step in STEPS[recognise(db) :]:  # read again: another process may have been first
            for statement in step.split(";\n"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """What is done within happens as a whole or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has ended it already
            db.execute("ROLLBACK")
        raise


def check(db: sqlite3.Connection, version: int = SCHEMA_VERSION) -> None:
    """Raises sqlite3.Error when a table or a column of that version is missing or anything is damaged: better now than in
    the middle of a run."""
    for table, wanted in schema(version).items():
        if missing := wanted - columns(db, table):
            raise sqlite3.DatabaseError(f"the table {table} lacks {', '.join(sorted(missing))}")
    found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)


@functools.cache
def schema(version: int) -> dict[str, set[str]]:
    """The names of the columns of each table."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for step in STEPS[:version]:
            db.executescript(step)
        return {table: columns(db, table) for table in TABLES}


def columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}


def brief(error: Exception) -> str:
    """What it says, in one line that can be shown: SQLite quotes a damaged file as it finds it."""
    said = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(str(error).split()))
    return said if len(said) <= BRIEF else f"{said[:BRIEF]}…"


def damaged(error: sqlite3.Error) -> bool:
    """Whether the file is to blame. SQLite's operational errors (no access, locked, disk full) leave it sound, and the
    other classes are mistakes of the caller."""
    return type(error) is sqlite3.DatabaseError


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While it lasts no other program closes its connection to the database in `folder` or gives the file another name, as
    far as it asks for this too.

    SQLite finds the log of a connection by the name that it was opened by. One that is closed as the last of a damaged file
    would delete the log of the file's successor, were that to come in between; and of two programs that find the same damage
    the second would set the successor aside. Where the folder cannot be locked, or is not free in BUSY_TIMEOUT_S, it goes on
    all the same: nothing may stop the measuring.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # no folder: a database in memory
        yield
        return
    until = time.monotonic() + BUSY_TIMEOUT_S
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(POLL_S)
            except OSError:  # a file system without such locks
                break
        yield
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Gives a damaged file, which nobody here has open any more, another name; returns that. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    for number in range(1, 1000):
        if not aside.exists():
            break
        aside = aside.with_name(f"{aside.name.partition('+')[0]}+{number}")
    for part in PARTS:
        if (old := Path(f"{path}{part}")).exists():
            old.rename(f"{aside}{part}")
    return aside


def salvage(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    """Copies the rows that can still be read; returns how many. Raises sqlite3.Error when `new` cannot take them."""
    copied = 0
    with transaction(new):
        for table in TABLES:
            known = {"rowid", *columns(new, table)}
            for row in rows(old, table):
                cells = {name: cell for name, cell in zip(row.keys(), row, strict=True) if name in known}
                names, marks = ", ".join(cells), ", ".join(f":{name}" for name in cells)
                copied += new.execute(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", cells).rowcount
    return copied


def rows(db: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row]:
    """A table's rows, numbers included. A damaged page ends a scan, so another one comes from the far end."""
    for direction in ("ASC", "DESC"):
        try:
            yield from db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {direction}")
            return
        except sqlite3.DatabaseError:
            continue  # what lies beyond is reached from the other side, if at all


def reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write to the file. Raises sqlite3.Error."""
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        check_same_thread=False,
        isolation_level=None,
        factory=Connection,
    )
    db.row_factory = sqlite3.Row
    db.text_factory = readable_text
    return db


def readable_text(raw: bytes) -> str:
    """Damaged text is still text; what it should have been, its reader decides."""
    return raw.decode("utf-8", "replace")
