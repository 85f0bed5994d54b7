"""Every run and every event, in SQLite, as it arrives: a killed server loses nothing that was measured.

A run is a row; what happened in it are events, JSON each, committed one by one. Measurements are events of kind
`measurement`; a loaded run shows the newest one of each point. Several processes (a server, a command line) use one
file at once: write-ahead log, a busy timeout, and each run names the process that owns it, so that what a killed
process left `running` is closed by whoever opens the file next.

Where the file cannot be used the store works in memory, and `problem` says why: attnlab.keeper.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnlab import summary
from attnlab.checked import is_moment, is_number
from attnlab.database import transaction
from attnlab.device import Device, PathStatus
from attnlab.history import Entry
from attnlab.keeper import Keeper
from attnlab.measurement import STATUSES, UNREACHED, Measurement
from attnlab.planner import sharp
from attnlab.run import RUN_STATES, Run, label
from attnlab.sweep import TIME, Sweep

UNREADABLE = (
    TypeError,
    ValueError,
    KeyError,
    RecursionError,
)  # what a cell of another version, or a damaged one, raises
LISTED = "id, created, state, reason, seconds, phase, sweep, device, imported, name, note, sentence, points"
ENDED = "state NOT IN ('queued', 'running')"
KEPT_S = 86_400.0  # how long a deleted run can be brought back
INSERT_RUN = """INSERT INTO runs
    (id, created, state, reason, seconds, phase, sweep, question, device, device_key, owner, imported) VALUES
    (:id, :created, :state, :reason, :seconds, :phase, :sweep, :question, :device, :device_key, :owner, :imported)"""
LABEL = "UPDATE runs SET name = ?, note = ? WHERE id = ?"
INSERT_EVENT = "INSERT INTO events (run_id, at, kind, data) VALUES (?, ?, ?, ?)"
ABANDONED_S = 3600.0  # a run of another host (an earlier container) with no event for so long has lost its process


def home() -> Path:
    """Where AttnLab keeps its data: ATTNLAB_HOME, else $XDG_DATA_HOME/attnlab, else ~/.local/share/attnlab. A `~` of
    nobody stays, and the store says that it cannot be used."""
    path = Path(os.environ.get("ATTNLAB_HOME") or Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share", "attnlab"))
    try:
        return path.expanduser()
    except RuntimeError:
        return path


class Store:
    """The database in `directory`, home() by default; safe to use from any thread. `problem`: "" while all is well."""

    def __init__(self, directory: Path | str | None = None):
        self._listed: tuple[Any, list[Entry]] = (None, [])  # what the list was made of, and the list
        self._keeper = Keeper(Path(directory if directory is not None else home()) / "attnlab.db", self._tidy)
        self._tidy()

    @property
    def path(self) -> Path:
        return self._keeper.path

    @property
    def problem(self) -> str:
        return self._keeper.problem

    def _write(self, statement: str, values: Any) -> None:
        self._keeper.change(lambda db: db.execute(statement, values))

    def _read(self, query: str, values: Any = ()) -> list[sqlite3.Row]:
        return self._keeper.read(query, values)

    # What the lab writes

    def create_run(self, run: Run) -> None:
        """Stores a new run; its measurements will come as events."""
        self._write(INSERT_RUN, row_of(run))

    def start(self, run_id: str, device: Device) -> None:
        self._write(
            "UPDATE runs SET state = 'running', device = ?, device_key = ? WHERE id = ?",
            (dump(device.to_json()), device.key, run_id),
        )

    def event(self, run_id: str, kind: str, data: dict[str, Any]) -> None:
        """Raises ValueError when `data` is not JSON (NaN and infinity are not)."""
        values = (run_id, time.time(), kind, dump(data))
        self._write(INSERT_EVENT, values)

    def finish(self, run_id: str, state: str, reason: str, seconds: float, phase: str = "") -> None:
        reason = reason.encode("utf-8", "replace").decode()  # the name of a file may hold what is no text
        self._write(
            "UPDATE runs SET state = ?, reason = ?, seconds = ?, phase = ? WHERE id = ?",
            (state, reason, seconds, phase, run_id),
        )

    def remember_device(self, worker_command: Iterable[str], device: Device, paths: Iterable[PathStatus]) -> None:
        values = (dump(list(worker_command)), dump(device.to_json()), dump([status.to_json() for status in paths]))
        self._write("INSERT OR REPLACE INTO devices (worker, device, paths) VALUES (?, ?, ?)", values)

    # What pages read

    def last_device(self, worker_command: Iterable[str]) -> tuple[Device, tuple[PathStatus, ...]] | None:
        """What the same worker command said of itself when it last started."""
        rows = self._read("SELECT device, paths FROM devices WHERE worker = ?", (dump(list(worker_command)),))
        if not rows:
            return None
        try:
            paths = tuple(PathStatus.from_json(status) for status in json.loads(rows[0]["paths"]))
            return Device.from_json(json.loads(rows[0]["device"])), paths
        except UNREADABLE:
            return None  # written by a version with other fields; the worker will say it again

    def load(self, run_id: str) -> Run | None:
        """The run with its measurements; None when it is not here or cannot be read."""
        rows = self._read("SELECT * FROM runs WHERE id = ?", (run_id,))
        run = row_run(rows[0]) if rows else None
        if run is None:
            return None
        newest = {}
        query = "SELECT data FROM events WHERE run_id = ? AND kind = 'measurement' ORDER BY id"
        for row in self._read(query, (run_id,)):
            try:
                m = Measurement.from_json(json.loads(row["data"]))
            except UNREADABLE:
                continue  # one unreadable point must not hide the others
            newest[m.path, m.seq] = m
        return replace(run, measurements=in_order(run.sweep, newest.values()))

    def events(self, run_id: str) -> list[tuple[float, str, dict[str, Any]]]:
        """(Unix time, kind, data), oldest first."""
        rows = self._read("SELECT at, kind, data FROM events WHERE run_id = ? ORDER BY id", (run_id,))
        return [(row["at"], row["kind"], parsed(row["data"])) for row in rows]

    def recent(self, limit: int = 50) -> list[Run]:
        """The newest runs, newest first, without their measurements."""
        query = "SELECT * FROM runs WHERE deleted IS NULL ORDER BY created DESC, rowid DESC LIMIT ?"
        rows = self._read(query, (limit,))
        return [run for row in rows if (run := row_run(row)) is not None]

    def find_answer(self, sweep: Sweep, device_key: str) -> Run | None:
        """The newest finished run that measured all that `sweep` asks on an equal device, cut down to what is asked. None that
        was deleted, or that came as a file: that it was measured here is only what the file says."""
        rows = self._read(
            "SELECT id, sweep FROM runs WHERE question = ? AND device_key = ? AND state = 'done'"
            " AND deleted IS NULL AND imported = 0 ORDER BY created DESC, rowid DESC",
            (question(sweep), device_key),
        )
        for row in rows:
            try:
                stored = json.loads(row["sweep"])
                covered = set(sweep.seqs) <= set(stored["seqs"]) and set(sweep.paths) <= set(stored["paths"])
            except UNREADABLE:
                continue
            run = self.load(row["id"]) if covered else None
            if run is None:
                continue
            asked = [m for m in run.measurements if m.path in sweep.paths and m.seq in sweep.seqs]
            complete = len(asked) == sweep.point_count and run.sweep.precision <= sweep.precision
            if complete and (run.sweep.refine or not sweep.refine) and all(answers(m, run.sweep, sweep) for m in asked):
                return replace(run, sweep=sweep, measurements=in_order(sweep, asked))
        return None

    def close(self) -> None:
        self._keeper.close()

    # The list of runs

    def entries(self) -> list[Entry]:
        """Every run that is not deleted, newest first, without loading a single point; a run that has ended may still lack
        its sentence, see describe. Read again only when something was written, here or by another process."""
        with self._keeper.lock:
            now = self._keeper.version()
            if self._listed[0] != now:
                query = f"SELECT {LISTED} FROM runs WHERE deleted IS NULL ORDER BY created DESC, rowid DESC"
                found = [(row, row_run(row)) for row in self._read(query)]
                self._listed = (now, [entry_of_row(row, run) for row, run in found if run is not None])
            return list(self._listed[1])

    def describe(self, limit_s: float) -> bool:
        """Writes down what the list says of ended runs that it says nothing of yet, the newest first, for about `limit_s`
        seconds; whether all of them have it now. A run is loaded once for that, and never again."""
        query = f"SELECT id FROM runs WHERE sentence IS NULL AND {ENDED} ORDER BY created DESC, rowid DESC"
        until = time.monotonic() + limit_s
        for row in self._read(query):
            if time.monotonic() > until:
                return False
            run = self.load(row["id"])
            said = summary.sentence(run) if run else ""  # what cannot be read is not asked for ever
            points = dump(Counter(m.status for m in run.measurements)) if run else None
            values = (said, points, row["id"])
            self._write(f"UPDATE runs SET sentence = ?, points = ? WHERE id = ? AND {ENDED}", values)
        return True

    def label(self, run_id: str, name: str, note: str) -> None:
        """Names a run and notes something on it. Raises ValueError when either is too long."""
        self._write(LABEL, (*label(name, note), run_id))

    def add(self, run: Run) -> str:
        """Stores a run that came as a file, whole or not at all. "added"; "known" where its id is here already, whatever
        else the file says; "restored" where it was deleted and is only hidden yet."""

        def work(db: sqlite3.Connection) -> str:
            with transaction(db):
                found = db.execute("SELECT deleted FROM runs WHERE id = ?", (run.id,)).fetchone()
                if found is not None:
                    db.execute("UPDATE runs SET deleted = NULL WHERE id = ?", (run.id,))
                    return "known" if found["deleted"] is None else "restored"
                db.execute(INSERT_RUN, row_of(run, imported=True))
                db.execute(LABEL, (run.name, run.note, run.id))
                events = [(run.id, time.time(), "measurement", dump(m.to_json())) for m in run.measurements]
                db.executemany(INSERT_EVENT, events)
                return "added"

        return self._keeper.change(work)

    def delete(self, run_ids: Iterable[str]) -> None:
        """Hides runs that have ended, at once and together. They are gone for good, with their points, when a program opens
        the store KEPT_S or more later; until then undo_delete brings them back."""
        now = time.time()
        rows = [(run_id,) for run_id in run_ids]
        statement = f"UPDATE runs SET deleted = {now!r} WHERE id = ? AND deleted IS NULL AND {ENDED}"
        self._keeper.change(lambda db: db.executemany(statement, rows))

    def undo_delete(self) -> None:
        """Brings back the runs that were deleted last."""
        self._write("UPDATE runs SET deleted = NULL WHERE deleted = (SELECT max(deleted) FROM runs)", ())

    def deleted_count(self) -> int:
        """How many runs are hidden, and not gone yet."""
        return self._read("SELECT count(*) FROM runs WHERE deleted IS NOT NULL")[0][0]

    def _remove_deleted(self) -> None:
        doomed = (time.time() - KEPT_S,)
        self._write("DELETE FROM events WHERE run_id IN (SELECT id FROM runs WHERE deleted < ?)", doomed)
        self._write("DELETE FROM runs WHERE deleted < ?", doomed)

    # What is put in order once the file is open

    def _tidy(self) -> None:
        self._close_abandoned_runs()
        self._remove_deleted()

    def _close_abandoned_runs(self) -> None:
        query = (
            "SELECT id, owner, coalesce((SELECT max(at) FROM events WHERE run_id = runs.id),"
            " (julianday(created) - 2440587.5) * 86400.0) AS last_at FROM runs WHERE state IN ('queued', 'running')"
        )
        for row in self._read(query):
            owner = parsed(row["owner"])
            if not isinstance(owner.get("pid"), int):
                owner, abandoned = {"pid": "unknown", "host": "an unknown host"}, True
            elif owner.get("host") == socket.gethostname():
                abandoned = not is_alive(owner)
            else:
                abandoned = time.time() - row["last_at"] > ABANDONED_S
            if abandoned:
                reason = f"the program that measured it has ended (process {owner['pid']} on {owner.get('host')})"
                self._write(
                    "UPDATE runs SET state = 'cancelled', reason = ? WHERE id = ? AND state IN ('queued', 'running')",
                    (reason, row["id"]),
                )


def parsed(text: str) -> dict[str, Any]:
    """The object that a cell holds; an empty one where it holds none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def dump(data: Any) -> str:
    return json.dumps(data, allow_nan=False, sort_keys=True, separators=(",", ":"))


def question(sweep: Sweep) -> str:
    """What must be equal for one run to answer another: the problem, whatever its sequence lengths, and the cache."""
    lengths = sweep.problem.lengths is not None  # they are in proportion to the problem's own sequence length
    left_out = ("seq_q",) if lengths else ("seq_q", "seq_kv")
    problem = {k: v for k, v in sweep.problem.to_json().items() if k not in left_out}
    beside = {
        "seq_q": sweep.seq_q,
        "l2": "" if sweep.l2 == "cold" else sweep.l2,
        "task": "" if sweep.task == TIME else sweep.task,
    }  # as they were before there was a choice
    return dump({**problem, **{k: v for k, v in beside.items() if v}})


def answers(m: Measurement, measured: Sweep, asked: Sweep) -> bool:
    """Whether a stored point would come out the same: a point that was not tried then may be tried now."""
    if m.status in ("fault", "timeout", UNREACHED):
        return False
    if asked.budget_s > measured.budget_s:  # it buys points that were skipped, and narrower intervals
        return m.status != "skipped" and (not m.ok or bool(m.findings) or sharp(m, asked.precision))
    if m.foreseen:
        return measured.try_oom or not asked.try_oom
    return True


def in_order(sweep: Sweep, measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """In the order of the sweep's paths, then seq."""
    place = {path: i for i, path in enumerate(sweep.paths)}
    return tuple(sorted(measurements, key=lambda m: (place.get(m.path, len(place)), m.path, m.seq)))


def row_of(run: Run, *, imported: bool = False) -> dict[str, Any]:
    """The columns of a new run, as INSERT_RUN takes them."""
    return {
        "id": run.id,
        "created": run.created,
        "state": run.state,
        "reason": run.reason,
        "seconds": run.seconds,
        "phase": run.phase,
        "sweep": dump(run.sweep.to_json()),
        "question": question(run.sweep),
        "device": dump(run.device.to_json()) if run.device else None,
        "device_key": run.device.key if run.device else None,
        "owner": dump(this_process()),
        "imported": int(imported),
    }


def entry_of_row(row: sqlite3.Row, run: Run) -> Entry:
    sentence, points = row["sentence"] or "", counts(row["points"])
    return Entry(run=run, sentence=sentence, points=points)


def counts(text: str | None) -> dict[str, int]:
    """How many points by status, as describe wrote them."""
    return {status: n for status, n in parsed(text or "").items() if status in STATUSES and type(n) is int}


@lru_cache(maxsize=4096)  # a list of runs repeats few of them, and each takes longer to check than its row to read
def cell_sweep(text: str) -> Sweep:
    return Sweep.from_json(json.loads(text))


@lru_cache(maxsize=256)
def cell_device(text: str) -> Device:
    return Device.from_json(json.loads(text))


def row_run(row: sqlite3.Row) -> Run | None:
    """The run of a row, without measurements; None when it was written with paths or fields that are not known here, or is
    damaged."""
    if row["state"] not in RUN_STATES or not is_moment(row["created"]) or not is_number(row["seconds"]):
        return None
    try:
        return Run(
            id=row["id"],
            sweep=cell_sweep(row["sweep"]),
            state=row["state"],
            created=row["created"],
            seconds=row["seconds"],
            phase=row["phase"],
            reason=row["reason"],
            device=cell_device(row["device"]) if row["device"] else None,
            recorded=bool(row["imported"]),
            name=row["name"],
            note=row["note"],
        )
    except UNREADABLE:
        return None


def this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": process_start(os.getpid())}


def is_alive(owner: dict[str, Any]) -> bool:
    """Whether that process of this host still runs; another one that was given its number later does not count."""
    try:
        with contextlib.suppress(PermissionError):  # it is there, and somebody else's
            os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return False
    return process_start(owner["pid"]) == owner["started"]


def process_start(pid: int) -> str:
    """When a process started, as the kernel counts, with the boot it counts from; "ended" for one that is but a number
    which its parent has not fetched; "" where /proc is missing."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # after the name in parentheses, which may hold spaces
    return "ended" if fields[0] == "Z" else f"{boot}:{fields[19]}"  # field 22 of proc(5) stat, starttime
