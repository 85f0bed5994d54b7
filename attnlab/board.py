"""What the lab shows: its runs, their queue and the worker, frozen values under one lock.

Callers take a snapshot at once or wait for a change, and each change is a new `version`. The supervisor (supervisor.py)
writes here what its worker says; any thread may submit a run and end one. What ends or begins is in the store before it is
seen.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from attnlab.device import Device
from attnlab.measurement import UNREACHED, Measurement
from attnlab.run import Run, Snapshot, WorkerState
from attnlab.store import Store, in_order
from attnlab.sweep import Sweep

KEPT_RUNS = 32  # ended runs held in memory


class QueueFull(RuntimeError):
    """As many runs wait as may. The message says how many."""


class Board:
    """`worker` is what is known of the worker before it is there. All methods may be called from any thread; hold `lock`
    where several changes are to be seen as one."""

    def __init__(self, store: Store, worker: WorkerState):
        self.store = store
        self.lock = threading.Condition()
        self.worker = worker  # the supervisor alone sets it
        self._device_key = worker.device.key if worker.device else ""
        self._version = 0
        self._runs: OrderedDict[str, Run] = OrderedDict()  # queued, running, and the last that have ended
        self._queue: list[str] = []
        self._active = ""
        self._begun: float | None = None  # monotonic time of the active run's first step
        self._newest = ""
        self._closed = False

    # What callers ask

    def submit(self, sweep: Sweep, *, fresh: bool = False, room: int | None = None) -> tuple[str, bool]:
        """See Lab.submit; whether the run is a new one comes with its id."""
        version = self._version
        if not fresh and (known := self._under_way(sweep) or self._answer(sweep)):
            return known, False
        with self.lock:
            if self._closed:
                raise RuntimeError("the lab is closed")
            # Outside the lock a read of the store holds nobody up; but what ran a moment ago may have become the answer.
            if not fresh and version != self._version and (known := self._under_way(sweep) or self._answer(sweep)):
                return known, False
            if room is not None and len(self._queue) >= room:
                raise QueueFull(f"{room} run{' waits' if room == 1 else 's wait'} already")
            now = datetime.now(timezone.utc)
            run_id = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
            run = Run(id=run_id, sweep=sweep, state="queued", created=now.isoformat(timespec="milliseconds"))
            self._runs[run_id] = run
            self._queue.append(run_id)
            self._newest = run_id
            self.store.create_run(run)
            self._bump()
        return run_id, True

    def snapshot(self, run_id: str | None = None) -> Snapshot:
        """See Lab.snapshot."""
        with self.lock:
            wanted = run_id or self._active or self._newest
            run = self._runs.get(wanted)
            version, worker, waiting = self._version, self.worker, tuple(self._queue)
        if run is None and wanted:
            run = self.store.load(wanted.partition(":")[0])
            if run is not None and not run.active:
                with self.lock:
                    self._keep(wanted, run)
        return Snapshot(version=version, worker=worker, run=run, queue=waiting)

    def changed(self, version: int, timeout: float | None = None) -> int:
        """See Lab.changed."""
        with self.lock:
            self.lock.wait_for(lambda: self._version != version or self._closed, timeout)
            return self._version

    def wait_for_point(self, known: Run, timeout: float | None = None) -> bool:
        """See Lab.wait_for_point."""

        def news() -> bool:
            run = self._runs.get(known.id)
            return run is None or not run.active or run.measurements is not known.measurements

        with self.lock:
            return self.lock.wait_for(news, timeout)

    def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """See Lab.wait."""
        with self.lock:
            self.lock.wait_for(lambda: not (run_id in self._runs and self._runs[run_id].active), timeout)
        return self.snapshot(run_id).run

    def close(self) -> bool:
        """Nothing can be submitted any more, and who waits for a change waits no longer. False when it was closed before."""
        with self.lock:
            already, self._closed = self._closed, True
            self.lock.notify_all()
        return not already

    def _under_way(self, sweep: Sweep) -> str:
        """The id of an equal run that is active or waits; "" when there is none."""
        with self.lock:
            equal = (run_id for run_id in self.unfinished() if self._runs[run_id].sweep == sweep)
            return next((run_id for run_id in equal if self._runs[run_id].active), "")

    def _answer(self, sweep: Sweep) -> str:
        """The id under which a stored run, cut down to this sweep, can be seen; "" when there is none."""
        with self.lock:
            known = self.worker.state in ("ready", "busy") and self.worker.device
            device_key = known.key if known else self._device_key
        if not device_key:
            return ""
        run = self.store.find_answer(sweep, device_key)
        if run is None:
            return ""
        # The same run answers several sweeps: each view of it gets a name of its own.
        view = f"{run.id}:{hashlib.sha256(json.dumps(sweep.to_json()).encode()).hexdigest()[:8]}"
        with self.lock:
            self._runs.pop(view, None)
            self._keep(view, replace(run, id=view))
            self._newest = view
            self._bump()
        return view

    # What changes a run

    def run(self, run_id: str) -> Run:
        with self.lock:
            return self._runs[run_id]

    def is_active(self, run_id: str) -> bool:
        with self.lock:
            return self._runs[run_id].active

    def unfinished(self) -> list[str]:
        """The ids of the active run and of those that wait."""
        with self.lock:
            return [run_id for run_id in (self._active, *self._queue) if run_id]

    def begin(self, device: Device) -> Run | None:
        """The run that waited longest, running now on this device; None where none waits."""
        with self.lock:
            if not self._queue:
                return None
            self._active = self._queue.pop(0)
            self.set_worker("busy")
            self.update(self._active, state="running", device=device)
            return self._runs[self._active]

    def start_clock(self) -> float:
        """The active run measures from now on; monotonic time."""
        self._begun = time.monotonic()
        return self._begun

    def end(self) -> None:
        """No run is active any more."""
        with self.lock:
            self._active, self._begun = "", None
            self._bump()

    def update(self, run_id: str, **changes: Any) -> None:
        with self.lock:
            self._runs[run_id] = replace(self._runs[run_id], **changes)
            self._bump()

    def say(self, run_id: str, activity: str) -> None:
        """An activity is for a run that goes on; a cancelled one has none."""
        with self.lock:
            if self._runs[run_id].active:
                self.update(run_id, activity=activity, seconds=self._seconds(run_id))

    def show(self, run_id: str, measurements: Iterable[Measurement]) -> None:
        """All that the run has measured so far."""
        with self.lock:
            ordered = in_order(self._runs[run_id].sweep, measurements)
            self.update(run_id, measurements=ordered, seconds=self._seconds(run_id))

    def finish(self, run_id: str, state: str, reason: str = "") -> None:
        """Ends a queued or running run; nothing happens to one that has ended."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is None or not run.active:
                return
            if run_id in self._queue:
                self._queue.remove(run_id)
            run = replace(run, state=state, reason=reason, activity="", seconds=self._seconds(run_id))
            self.store.finish(run_id, state, reason, run.seconds, run.phase)
            del self._runs[run_id]
            self._keep(run_id, run)  # as the newest of those that have ended
            self._bump()

    def fail(self, run_id: str, reason: str) -> None:
        """Ends a run that no worker can go on with. What it lacks is a point all the same, and the blame of no path."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is None or not run.active:
                return
            there = {(m.path, m.seq) for m in run.measurements}
            lacking = [
                Measurement.of(run.sweep.at(seq), path, UNREACHED, reason=reason)
                for path in run.sweep.paths
                for seq in run.sweep.seqs
                if (path, seq) not in there
            ]
            for m in lacking:
                self.store.event(run_id, "measurement", m.to_json())
            self.update(run_id, measurements=in_order(run.sweep, [*run.measurements, *lacking]))
            self.finish(run_id, "failed", reason)

    # What changes the worker

    def set_worker(self, state: str, text: str = "", **changes: Any) -> None:
        with self.lock:
            worker = replace(self.worker, state=state, text=text, **changes)
            if worker != self.worker:
                self.worker = worker
                self._bump()

    def arrived(self, device: Device) -> None:
        """A worker is there. Answers given before, from another device or other versions, say so."""
        with self.lock:
            before, self._device_key = self._device_key, device.key
            if before == device.key:
                return
            for run_id, run in list(self._runs.items()):
                if ":" in run_id and run.device is not None and run.device.key != device.key:
                    self.update(run_id, reason="measured on another device or with other versions; measure it again")

    # Its own

    def _bump(self) -> None:
        self._version += 1
        self.lock.notify_all()

    def _keep(self, run_id: str, run: Run) -> None:
        self._runs[run_id] = run
        ended = [key for key, kept in self._runs.items() if not kept.active and key not in (self._newest, self._active)]
        for key in ended[:-KEPT_RUNS]:
            del self._runs[key]

    def _seconds(self, run_id: str) -> float:
        if run_id != self._active or self._begun is None:
            return self._runs[run_id].seconds
        return round(time.monotonic() - self._begun, 3)
