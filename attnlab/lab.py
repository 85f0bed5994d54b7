"""The lab owns the worker process: queue, cancel, time limits, restarts, snapshots.

    lab = Lab(Store())
    run_id = lab.submit(sweep)      at once; a run that was measured before is the answer, without measuring
    lab.snapshot(run_id).run        at once, four times a second if need be
    lab.cancel(run_id)

One supervisor thread talks to one worker (protocol.py, process.py) and does everything in turn, so what it keeps for
itself needs no lock: lines of the worker, its end, and calls of the API all arrive in one inbox, and between two of them
there is at most one alarm (a time limit). What callers see is a table of frozen runs, changed and read under a
condition; each change is a `version`.

The worker may die, hang or talk nonsense at any moment. Each of that becomes a status on the point it happened to, a
new worker, and the rest of the sweep; where no worker can start any more, what is missing becomes points that were not
reached. The web process itself never imports torch.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import queue
import secrets
import shlex
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from attnlab import protocol
from attnlab.checked import is_number, shown
from attnlab.device import Device, PathStatus
from attnlab.measurement import UNREACHED, Measurement
from attnlab.paths import PATHS
from attnlab.planner import Planner, Step, Untried
from attnlab.process import WorkerProcess
from attnlab.remedy import remedy, remedy_at_start, with_remedy
from attnlab.run import Run, Snapshot, WorkerState
from attnlab.samples import screened
from attnlab.store import Store, in_order
from attnlab.sweep import TIME, Sweep
from attnlab.units import ms, seconds

logger = logging.getLogger(__name__)

DEATHS = 3  # so many workers in a row that cannot start, or die without a point that says why, and the run fails
BACKOFF_S = (0.5, 2.0)  # between them: a driver or a connection may come back
RESTART_LIMIT_S = 20.0  # a worker on a GPU of this machine is there by then; whoever waits longer is told for how long
COMPILE_LIMIT_S = 600.0
HANG_FACTOR = 10  # a step may take so many times what was predicted
KEPT_RUNS = 32  # ended runs held in memory
KEPT_NOTES = 20  # of a run; a library that floods stdout must not flood the store


def default_worker_command() -> list[str]:
    """ATTNLAB_WORKER is put in front: what starts the worker another way or elsewhere, such as "srun --gres=gpu:1" or
    "ssh gpu-box cd AttnLab '&&'". ATTNLAB_WORKER_PYTHON is the interpreter there, where that is another one."""
    prefix = os.environ.get("ATTNLAB_WORKER", "")
    try:
        words = shlex.split(prefix)
    except ValueError:  # a quote that is not closed; the words as they are name no program, and the page will say so
        words = prefix.split()
    return [*words, os.environ.get("ATTNLAB_WORKER_PYTHON") or sys.executable, "-u", "-m", "attnlab.worker"]


@dataclass
class Job:
    """The run being measured, as the supervisor knows it."""

    run_id: str
    planner: Planner
    free_bytes: int
    points: dict[tuple[str, int], Measurement] = field(default_factory=dict)
    step: Step | None = None  # in flight
    step_id: int = 0
    reported: set[str] = field(default_factory=set)  # paths of the step in flight that have a measurement
    started: str = ""  # path of its last `started`
    limit_s: float = 0.0  # of silence
    notes: int = 0
    begun: float | None = None  # monotonic time of the first step
    paused_since: float | None = None
    paused_s: float = 0.0  # waiting for the device or for a new worker: not the run's time

    def pause(self) -> None:
        if self.begun is not None and self.paused_since is None:
            self.paused_since = time.monotonic()

    def resume(self) -> None:
        if self.paused_since is not None:
            self.paused_s += time.monotonic() - self.paused_since
            self.paused_since = None

    def elapsed_s(self) -> float:
        return 0.0 if self.begun is None else time.monotonic() - self.begun - self.paused_s

    @property
    def in_flight(self) -> str:
        """The path that a fault belongs to; "" when none has been started or its measurement is here."""
        return self.started if self.step is not None and self.started not in self.reported else ""


class QueueFull(RuntimeError):
    """As many runs wait as may. The message says how many."""


class Lab:
    """See the module's opening. All methods may be called from any thread.

    worker_command  argv of the worker; default_worker_command() when None
    time_limit_s    silence that is taken for a hang; longer where a step was predicted to be long, or compiles
    cancel_limit_s  a worker that does not answer a cancel in this time is killed
    slow_start_s    a worker that has not said hello in this time is slow, and whoever waits is told
    start_limit_s   how long it may take at all (a batch system may queue it)
    """

    def __init__(
        self,
        store: Store,
        *,
        worker_command: Sequence[str] | None = None,
        time_limit_s: float = 60.0,
        cancel_limit_s: float = 2.0,
        slow_start_s: float = RESTART_LIMIT_S,
        start_limit_s: float = 600.0,
    ):
        self.store = store
        self.worker_command = list(worker_command) if worker_command is not None else default_worker_command()
        self.time_limit_s = time_limit_s
        self.cancel_limit_s = cancel_limit_s
        self.slow_start_s = min(slow_start_s, start_limit_s)
        self.start_limit_s = start_limit_s
        self.notes: deque[str] = deque(maxlen=100)  # what the worker said that nobody asked for

        # Seen by all threads, changed under the condition.
        self._changed = threading.Condition()
        self._version = 0
        self._runs: OrderedDict[str, Run] = OrderedDict()  # queued, running, and the last that have ended
        self._queue: list[str] = []
        self._active = ""
        self._newest = ""
        self._closed = False
        last = store.last_device(self.worker_command)
        self._last_key = last[0].key if last else ""
        self._worker = WorkerState(state="starting", device=last[0] if last else None, paths=last[1] if last else ())

        # The supervisor's own.
        self._inbox: queue.Queue[tuple[str, Any, Any]] = queue.Queue()
        self._process: WorkerProcess | None = None
        self._ready = False  # the worker has said hello
        self._fatal = ""
        self._held = ""  # who holds the device, while the worker waits for it with its ceilings
        self._deaths = 0  # in a row
        self._down_since: float | None = None  # monotonic: when the last worker was lost, until the next one says hello
        self._job: Job | None = None
        self._steps = 0
        self._alarm: tuple[float, Callable[[], None]] | None = None
        self._before_alarm: int | None = None  # lines that were there when the alarm came due, and go first

        self._supervisor = threading.Thread(target=self._supervise, name="attnlab-lab", daemon=True)
        self._supervisor.start()
        atexit.register(self.close)

    # What pages and the command line call

    def submit(self, sweep: Sweep, *, fresh: bool = False, room: int | None = None) -> str:
        """Queues the sweep and returns its run id. Unless `fresh`, an equal run that is queued or running is joined,
        and one that was measured on this device before is the answer. Raises QueueFull where it would be one more behind
        `room` waiting runs, RuntimeError after close()."""
        if not fresh and (answer := self._answer(sweep)):
            return answer
        with self._changed:
            if self._closed:
                raise RuntimeError("the lab is closed")
            if not fresh:
                for run_id in (self._active, *self._queue):
                    if run_id and self._runs[run_id].sweep == sweep and self._runs[run_id].active:
                        return run_id
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
        self._inbox.put(("wake", None, None))
        return run_id

    def cancel(self, run_id: str) -> None:
        """Ends a queued or running run; what it measured stays. Nothing happens to a run that has ended."""
        self._finish(run_id, "cancelled", "stopped")
        self._inbox.put(("cancel", None, None))

    def snapshot(self, run_id: str | None = None) -> Snapshot:
        """The worker, the queue and one run: the active one, or else the newest submitted here, when run_id is None."""
        with self._changed:
            wanted = run_id or self._active or self._newest
            run = self._runs.get(wanted)
            version, worker, waiting = self._version, self._worker, tuple(self._queue)
        if run is None and wanted:
            run = self.store.load(wanted.partition(":")[0])
            if run is not None and not run.active:
                with self._changed:
                    self._keep(wanted, run)
        return Snapshot(version=version, worker=worker, run=run, queue=waiting)

    def changed(self, version: int, timeout: float | None = None) -> int:
        """Blocks until the lab's version is another one, or `timeout` seconds; returns the version then."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self._closed, timeout)
            return self._version

    def wait_for_point(self, known: Run, timeout: float | None = None) -> bool:
        """Blocks until the run has a measurement more than `known`, or has ended, or `timeout` seconds; False for the last."""

        def news() -> bool:
            run = self._runs.get(known.id)
            return run is None or not run.active or run.measurements is not known.measurements

        with self._changed:
            return self._changed.wait_for(news, timeout)

    def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """Blocks until the run has ended, or `timeout` seconds; the run as it is then, None when there is none."""
        with self._changed:
            self._changed.wait_for(lambda: not (run_id in self._runs and self._runs[run_id].active), timeout)
        return self.snapshot(run_id).run

    def close(self) -> None:
        """Ends the worker and the threads; active and queued runs become `cancelled`. May be called twice."""
        with self._changed:
            already, self._closed = self._closed, True
            self._changed.notify_all()
        if not already:
            atexit.unregister(self.close)
            self._inbox.put(("close", None, None))
        if threading.current_thread() is not self._supervisor:
            self._supervisor.join(10)

    # The table that callers see

    def _bump(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def _keep(self, run_id: str, run: Run) -> None:
        self._runs[run_id] = run
        ended = [key for key, kept in self._runs.items() if not kept.active and key not in (self._newest, self._active)]
        for key in ended[:-KEPT_RUNS]:
            del self._runs[key]

    def _update(self, run_id: str, **changes: Any) -> None:
        with self._changed:
            self._runs[run_id] = replace(self._runs[run_id], **changes)
            self._bump()

    def _say(self, run_id: str, activity: str) -> None:
        """An activity is for a run that goes on; a cancelled one has none."""
        with self._changed:
            if self._runs[run_id].active:
                self._update(run_id, activity=activity, seconds=self._seconds(run_id))

    def _seconds(self, run_id: str) -> float:
        job = self._job
        if job is None or job.run_id != run_id or job.begun is None:
            return self._runs[run_id].seconds
        return round(time.monotonic() - job.begun, 3)

    def _set_worker(self, state: str, text: str = "", **changes: Any) -> None:
        with self._changed:
            worker = replace(self._worker, state=state, text=text, **changes)
            if worker != self._worker:
                self._worker = worker
                self._bump()

    def _finish(self, run_id: str, state: str, reason: str = "") -> None:
        with self._changed:
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

    def _is_active(self, run_id: str) -> bool:
        with self._changed:
            return self._runs[run_id].active

    def _answer(self, sweep: Sweep) -> str:
        """The id under which a stored run, cut down to this sweep, can be seen; "" when there is none."""
        with self._changed:
            known = self._worker.state in ("ready", "busy") and self._worker.device
            device_key = known.key if known else self._last_key
        if not device_key:
            return ""
        run = self.store.find_answer(sweep, device_key)
        if run is None:
            return ""
        # The same run answers several sweeps: each view of it gets a name of its own.
        view = f"{run.id}:{hashlib.sha256(json.dumps(sweep.to_json()).encode()).hexdigest()[:8]}"
        with self._changed:
            self._runs.pop(view, None)
            self._keep(view, replace(run, id=view))
            self._newest = view
            self._bump()
        return view

    # The supervisor

    def _supervise(self) -> None:
        self._start_worker()
        while True:
            kind, process, line = self._next()
            try:
                if kind == "close":
                    self._shut_down()
                    return
                self._handle(kind, process, line)
            except Exception as error:  # a mistake here must not leave pages waiting for ever
                logger.exception("the lab's supervisor failed")
                self._give_up(f"the lab cannot go on with this worker: {type(error).__name__}: {error}")

    def _next(self) -> tuple[str, WorkerProcess | None, bytes | None]:
        """The next line or call, or an alarm that is due. What had come before it was due goes first; what keeps coming
        does not, or a worker that floods its output could neither be timed out nor cancelled."""
        if self._alarm is None:
            return self._inbox.get()
        left_s = self._alarm[0] - time.monotonic()
        try:
            if left_s > 0:
                self._before_alarm = None
                return self._inbox.get(timeout=left_s)
            if self._before_alarm is None:
                self._before_alarm = self._inbox.qsize()
            if self._before_alarm:
                self._before_alarm -= 1
                return self._inbox.get_nowait()
        except queue.Empty:
            if left_s > 0:
                return self._next()
        self._before_alarm = None
        return "alarm", None, None

    def _handle(self, kind: str, process: WorkerProcess | None, line: bytes | None) -> None:
        if kind == "alarm":
            _, ring = self._alarm
            self._alarm = None
            ring()
        elif kind == "wake":
            if self._process is None and self._alarm is None:
                self._deaths = 0
                self._start_worker()
            elif self._ready and (self._job is None or self._job.step is None):
                self._advance()
        elif kind == "cancel":
            self._cancel_step()
        elif process is self._process and process is not None:  # not the last words of one that was killed
            if line is None:
                self._on_death()
            else:
                self._on_line(line)

    def _set_alarm(self, seconds: float, ring: Callable[[], None]) -> None:
        self._alarm = (time.monotonic() + seconds, ring)

    def _start_worker(self) -> None:
        self._alarm = None
        self._ready, self._fatal, self._held = False, "", ""
        again = self._deaths or self._job
        self._set_worker("restarting" if again else "starting", self._restarting if again else "")
        try:
            self._process = WorkerProcess(self.worker_command, self._inbox)
        except OSError as error:
            self._on_loss(f"{error}; the command is {shlex.join(self.worker_command)}")
            return
        self._set_alarm(self.slow_start_s, self._on_slow_start)

    def _shut_down(self) -> None:
        for run_id in [self._active, *self._queue]:
            if run_id:
                self._finish(run_id, "cancelled", "the program was closed")
        if self._process is not None:
            self._process.end(grace_s=1.0)
            self._process = None
        self._set_worker("stopped")

    def _advance(self) -> None:
        """The worker is ready and nothing is in flight: the next step of the run, or of the next run."""
        while True:
            job = self._job
            if job is not None and not self._is_active(job.run_id):
                self._end_job()
            elif job is None:
                if not self._begin_job():
                    self._set_worker("ready")
                    return
            else:
                job.resume()
                plan = job.planner.next_step(job.points.values(), job.elapsed_s(), job.free_bytes)
                if plan is None:
                    self._finish(job.run_id, "done")
                    self._end_job()
                elif isinstance(plan, Untried):
                    for m in plan.measurements:
                        self._record(job, m)
                else:
                    self._send_step(job, plan)
                    return

    def _begin_job(self) -> bool:
        device = self._worker.device
        with self._changed:
            if not self._queue:
                return False
            run_id = self._queue.pop(0)
            self._active = run_id
            run = self._runs[run_id]
            self._worker = replace(self._worker, state="busy", text="")
            self._update(run_id, state="running", device=device)
        self.store.start(run_id, device)
        self._job = Job(run_id, Planner(run.sweep, device), device.free_bytes)
        self._deaths = 0  # those before are not this run's
        return True

    def _end_job(self) -> None:
        self._job = None
        with self._changed:
            self._active = ""
            self._bump()

    def _send_step(self, job: Job, step: Step) -> None:
        self._steps += 1
        job.step, job.step_id, job.started = step, self._steps, ""
        job.reported = set()
        job.limit_s = self._limit_s(step)
        if job.begun is None:
            job.begun = time.monotonic()
        sweep = job.planner.sweep
        timing = {
            "phase": step.phase,
            "budget_s": step.budget_s,
            "min_samples": step.min_samples,
            "target": step.target,
            "l2": sweep.l2,
        }
        how = {"do": "measure", **timing} if sweep.task == TIME else {"do": "examine", "task": sweep.task}
        self._process.send({"id": job.step_id, "problem": step.problem.to_json(), "paths": list(step.paths), **how})
        self._set_alarm(job.limit_s, self._on_time_limit)
        if self._runs[job.run_id].phase != step.phase:
            self._update(job.run_id, phase=step.phase)
        if self._held:
            self._wait_for_device(job, self._held)

    def _record(self, job: Job, m: Measurement) -> None:
        """A point's newest measurement: into the store, then into sight."""
        before = job.points.get((m.path, m.seq))
        if before is not None and before.device_ms and m.device_ms is None:
            m = replace(m, reason=f"{m.reason}; the quick pass had measured {ms(before.device_ms)}")
        if not m.foreseen:
            m = replace(m, reason=with_remedy(m.reason, remedy(m.status, m.reason)))
        self.store.event(job.run_id, "measurement", m.to_json())
        job.points[m.path, m.seq] = m
        with self._changed:
            ordered = in_order(self._runs[job.run_id].sweep, job.points.values())
            self._update(job.run_id, measurements=ordered, seconds=self._seconds(job.run_id))

    def _blame(self, job: Job, path: str, status: str, reason: str) -> None:
        self._record(job, Measurement.of(job.step.problem, path, status, reason=reason, phase=job.step.phase))
        job.reported.add(path)

    def _note(self, text: str) -> None:
        """What the worker said out of turn; kept for whoever looks for the cause of something."""
        logger.debug("worker: %s", text)
        self.notes.append(text)
        if self._job is not None and self._job.notes < KEPT_NOTES:
            self._job.notes += 1
            self.store.event(self._job.run_id, "note", {"text": text})

    # What the worker says

    def _on_line(self, line: bytes) -> None:
        message = protocol.parse(line.decode("utf-8", "replace")) if line.endswith(b"\n") else None
        answers = {
            "hello": self._on_hello,
            "path": self._on_path,
            "ceilings": self._on_ceilings,
            "waiting": self._on_waiting,
            "started": self._on_started,
            "compiling": self._on_compiling,
            "running": self._on_running,
            "measurement": self._on_measurement,
            "done": self._on_done,
            "fatal": self._on_fatal,
        }
        event = str(message.get("event")) if message else ""
        if event not in answers:
            self._note(f"not a message: {line[:200]!r}")
            return
        try:
            protocol.check_event(message)
            answers[event](message)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if event in ("hello", "done"):  # without these nothing goes on
                raise
            self._note(f"malformed {event} ({type(error).__name__}: {error}): {line[:200]!r}")

    def _current(self, message: dict[str, Any]) -> Job | None:
        """The job, when the message speaks of its step in flight; any sign of life there starts the time limit anew."""
        job = self._job
        if job is None or job.step is None or message.get("id") != job.step_id:
            self._note(f"{message['event']} of a step that is not in flight: {message.get('id')!r}")
            return None
        self._held = ""
        if self._is_active(job.run_id):
            job.resume()
            self._set_alarm(job.limit_s, self._on_time_limit)
        return job

    def _on_hello(self, message: dict[str, Any]) -> None:
        if self._ready:
            self._note("a second hello")
            return
        device = self._with_ceilings(Device.from_json(message["device"]))
        paths = tuple(PathStatus.from_json(status) for status in message["paths"])
        self._ready, self._alarm = True, None
        self._note_restart()
        if device.key != self._last_key:
            self._disown_answers(device)
        self._last_key = device.key
        self._set_worker("busy" if self._job else "ready", device=device, paths=paths)
        self.store.remember_device(self.worker_command, device, paths)
        known = {"matmul_tflops": device.matmul_tflops, "copy_tbs": device.copy_tbs} if device.matmul_tflops else {}
        self._process.send({"do": "ceilings", **known})
        if (job := self._job) is not None:
            job.free_bytes = device.free_bytes
            self._end_on_another_device(job, device)
        self._advance()

    def _note_restart(self) -> None:
        """How long the run was without a worker."""
        if self._down_since is not None and self._job is not None:
            after_s = round(time.monotonic() - self._down_since, 3)
            self.store.event(self._job.run_id, "worker ready", {"after_s": after_s, "limit_s": self.slow_start_s})
        self._down_since = None

    def _end_on_another_device(self, job: Job, device: Device) -> None:
        """A new worker may find another device than the last one, such as the CPU where a driver has gone: no run mixes
        the two."""
        before = self._runs[job.run_id].device
        if before.key != device.key:
            self._fail(
                job.run_id,
                f"{before.name} is gone or has changed: the new worker found {device.name}. What was measured stands. See"
                f" whether {'nvidia-smi still answers' if before.kind == 'cuda' else 'the machine is the same'}, then"
                " measure again",
            )

    def _with_ceilings(self, device: Device) -> Device:
        """The device with what was measured on it before, by a worker that was started the same way."""
        before = self.store.last_device(self.worker_command)
        if before is None or before[0].key != device.key:
            return device
        return replace(device, matmul_tflops=before[0].matmul_tflops, copy_tbs=before[0].copy_tbs)

    def _on_ceilings(self, message: dict[str, Any]) -> None:
        self._held = ""
        rates = tuple(map(tuple, message["matmul_tflops"]))
        device = replace(self._worker.device, matmul_tflops=rates, copy_tbs=message["copy_tbs"])
        with self._changed:
            self._set_worker(self._worker.state, self._worker.text, device=device)
            if self._active:
                self._update(self._active, device=device)
        self.store.remember_device(self.worker_command, device, self._worker.paths)
        if (job := self._job) is not None:
            self.store.start(job.run_id, device)
            if job.step is not None:  # it waited behind the ceilings, which may have waited for the device
                job.resume()
                self._set_alarm(job.limit_s, self._on_time_limit)

    def _disown_answers(self, device: Device) -> None:
        """Answers given before the worker was there, from another device or other versions, say so."""
        with self._changed:
            for run_id, run in list(self._runs.items()):
                if ":" in run_id and run.device is not None and run.device.key != device.key:
                    self._update(run_id, reason="measured on another device or with other versions; measure it again")

    def _on_path(self, message: dict[str, Any]) -> None:
        status = PathStatus.from_json(message["status"])
        if status.name not in PATHS:
            raise ValueError(f"the path is {shown(status.name)}; legal: {', '.join(PATHS)}")
        with self._changed:
            others = {known.name: known for known in self._worker.paths}
            paths = tuple({**others, status.name: status}.values())
            self._worker = replace(self._worker, paths=paths)
            self._bump()
        if self._worker.device is not None:
            self.store.remember_device(self.worker_command, self._worker.device, paths)

    def _on_waiting(self, message: dict[str, Any]) -> None:
        if message.get("id") is None:  # with its ceilings, and whatever comes meanwhile waits behind them
            self._held = message["text"]
            job = self._job
        else:
            job = self._current(message)
        if job is not None and self._is_active(job.run_id):
            self._wait_for_device(job, message["text"])

    def _wait_for_device(self, job: Job, text: str) -> None:
        """Another process measures; that may take as long as it likes."""
        job.pause()
        self._alarm = None
        self._say(job.run_id, text)
        self.store.event(job.run_id, "waiting", {"text": text})

    def _on_started(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) is None:
            return
        if message["path"] not in job.step.paths:
            self._note(f"started a path that was not asked for: {message['path']!r}")
            return
        job.started = message["path"]
        self._say(job.run_id, f"{job.started} at sequence {job.step.seq:,}")
        self.store.event(job.run_id, "started", {"path": job.started, "seq": job.step.seq, "phase": job.step.phase})

    def _on_compiling(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) and self._is_active(job.run_id):
            job.limit_s = max(job.limit_s, COMPILE_LIMIT_S)
            self._set_alarm(job.limit_s, self._on_time_limit)
            self._say(job.run_id, message["text"])
            self.store.event(job.run_id, "compiling", {"path": message["path"], "text": message["text"]})

    def _on_running(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) and self._is_active(job.run_id):
            job.limit_s = self._limit_s(job.step)
            self._set_alarm(job.limit_s, self._on_time_limit)
            self._say(job.run_id, f"{message['path']} at sequence {job.step.seq:,}")

    def _limit_s(self, step: Step) -> float:
        return max(self.time_limit_s, HANG_FACTOR * step.predicted_s)

    def _on_measurement(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) is None:
            return
        m = Measurement.from_json(message["measurement"])
        if m.problem != job.step.problem or m.path not in job.step.paths or m.path in job.reported:
            self._note(f"a measurement that was not asked for: {m.path} at sequence {m.seq:,}")
            return
        m = replace(m, phase=job.step.phase)
        timed = job.planner.sweep.task == TIME
        self._record(job, screened(m, self._worker.device) if timed else m)
        job.reported.add(m.path)
        job.limit_s = self._limit_s(job.step)  # what compiled has compiled
        self._deaths = 0  # a fault too is one point less

    def _on_done(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) is None:
            return
        step, free_bytes = job.step, message.get("free_bytes")
        if type(free_bytes) is int and is_number(free_bytes):
            job.free_bytes = free_bytes
        if self._is_active(job.run_id):
            for path in step.paths:
                if path not in job.reported:
                    self._blame(job, path, "fault", "the worker ended the step without a measurement")
        job.step, self._alarm = None, None
        self._advance()  # before the store: the device waits
        self.store.event(job.run_id, "done", {"seq": step.seq, "phase": step.phase, "free_bytes": free_bytes})

    def _on_fatal(self, message: dict[str, Any]) -> None:
        self._fatal = next(iter(message["reason"].splitlines()), "it gave no reason")
        self._set_alarm(self.cancel_limit_s, self._on_death)  # it said that it exits; its end of file brings us there

    # What goes wrong

    def _on_death(self) -> None:
        """The worker has closed its output. Whatever it was doing, the rest of the sweep goes on in a new one."""
        self._down_since = self._down_since or time.monotonic()
        was_ready, process = self._ready, self._process
        how = process.end(grace_s=1.0)
        why = self._fatal or how
        self._process, self._ready, self._alarm = None, False, None
        job, blamed = self._job, False
        if job is not None and job.step is not None:
            blamed = bool(job.in_flight) and self._is_active(job.run_id)
            if blamed:
                self._blame(job, job.in_flight, "fault", f"{self._fatal or f'the worker died ({how})'}; restarted")
            job.step = None
        if job is not None:
            job.pause()
            self.store.event(job.run_id, "worker died", {"reason": why})
        if blamed:  # there is one point less to try, so this comes to an end by itself
            self._deaths = 0
            self._restart()
        else:
            self._on_loss(why, was_ready)

    def _on_loss(self, why: str, was_ready: bool = False) -> None:
        """A worker has gone, or did not come, and no path is to blame: another try after a moment, but not for ever."""
        self._deaths += 1
        if self._deaths < DEATHS:
            self._restart(BACKOFF_S[self._deaths - 1])
        elif was_ready:
            self._give_up(f"the worker died {self._deaths} times in a row: {why}")
        else:
            self._give_up(f"the worker cannot start, tried {self._deaths} times: {why}")

    def _restart(self, after_s: float = 0.0) -> None:
        job = self._job
        if job is not None and not self._is_active(job.run_id):
            self._end_job()
        elif job is not None:
            job.pause()
            self._say(job.run_id, self._restarting)
        self._set_worker("restarting", self._restarting)
        if after_s:
            self._set_alarm(after_s, self._start_worker)
        else:
            self._start_worker()

    @property
    def _kind(self) -> str:
        """What a worker is called, before the noun."""
        device = self._worker.device
        return "" if device is None else "GPU " if device.kind == "cuda" else "CPU "

    @property
    def _restarting(self) -> str:
        """What people are told meanwhile."""
        again = f", try {self._deaths + 1} of {DEATHS}" if self._deaths > 1 else ""
        return f"restarting the {self._kind}worker{again}"

    def _kill_worker(self) -> None:
        """At once, with everything it has started. Lines of it that are still in the inbox no longer count."""
        self._down_since = self._down_since or time.monotonic()
        if self._process is not None:
            self._process.end()
        self._process, self._ready, self._alarm = None, False, None

    def _on_time_limit(self) -> None:
        job = self._job
        self._kill_worker()
        path = job.in_flight or next((p for p in job.step.paths if p not in job.reported), "")
        if path:
            reason = f"nothing came for {seconds(job.limit_s)}, the time limit; the worker was restarted"
            self._blame(job, path, "timeout", reason)
        job.step = None
        self._restart()

    def _on_slow_start(self) -> None:
        """It is waited for, and people are told for how long: a batch system may queue it, a disk may be slow."""
        state = self._worker.state
        text = (
            f"{state} the {self._kind}worker takes longer than {seconds(self.slow_start_s)};"
            f" it is waited for up to {seconds(self.start_limit_s)}"
        )
        self._set_worker(state, text)
        if self._job is not None:
            self._say(self._job.run_id, text)
        self._set_alarm(self.start_limit_s - self.slow_start_s, self._on_start_limit)

    def _on_start_limit(self) -> None:
        self._kill_worker()
        self._give_up(f"the worker did not start within {seconds(self.start_limit_s)}")

    def _cancel_step(self) -> None:
        """The run in flight was cancelled: the worker gets a moment to say so, and stays warm if it does."""
        job = self._job
        if job is None or self._is_active(job.run_id):
            return
        if job.step is not None and self._ready:
            self._process.send({"do": "cancel"})
            self._set_alarm(self.cancel_limit_s, self._on_cancel_limit)
        elif self._ready:
            self._advance()
        else:
            self._end_job()

    def _on_cancel_limit(self) -> None:
        self._kill_worker()
        self._job.step = None
        self._restart()

    def _give_up(self, why: str) -> None:
        """No worker, no runs; the next submit tries again."""
        self._kill_worker()
        self._down_since = None
        reason = with_remedy(why, remedy_at_start(why))
        with self._changed:  # nobody sees the one without the other
            self._set_worker("failed", reason)
            for run_id in [self._active, *self._queue]:
                self._fail(run_id, reason)
            self._end_job()

    def _fail(self, run_id: str, reason: str) -> None:
        """Ends a run that no worker can go on with. What it lacks is a point all the same, and the blame of no path."""
        with self._changed:
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
            self._update(run_id, measurements=in_order(run.sweep, [*run.measurements, *lacking]))
            self._finish(run_id, "failed", reason)
