"""The thread that talks to the worker: one step after the other, and what to do when none comes back.

One supervisor talks to one worker (protocol.py, process.py) and does everything in turn, so what it keeps for itself needs
no lock: lines of the worker, its end, and calls of the lab all arrive in one inbox, and between two of them there is at most
one alarm (a time limit). What callers see it writes on the board (board.py).

The worker may die, hang or talk nonsense at any moment. Each of that becomes a status on the point it happened to, a
new worker, and the rest of the sweep; where no worker can start any more, what is missing becomes points that were not
reached.
"""

from __future__ import annotations

import logging
import math
import queue
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab import protocol
from attnlab.board import Board
from attnlab.checked import is_number, shown
from attnlab.device import Device, PathStatus
from attnlab.measurement import Measurement
from attnlab.paths import PATHS
from attnlab.planner import Planner, Step, Untried
from attnlab.process import WorkerProcess
from attnlab.remedy import remedy, remedy_at_start, with_remedy
from attnlab.samples import screened
from attnlab.sweep import TIME
from attnlab.units import ms, seconds

logger = logging.getLogger(__name__)

DEATHS = 3  # so many workers in a row that cannot start, or die without a point that says why, and the run fails
BACKOFF_S = (0.5, 2.0)  # between them: a driver or a connection may come back
RESTART_LIMIT_S = 20.0  # a worker on a GPU of this machine is there by then; whoever waits longer is told for how long
COMPILE_LIMIT_S = 600.0
HANG_FACTOR = 10  # a step may take so many times what was predicted
KEPT_NOTES = 20  # of a run; a library that floods stdout must not flood the store


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


class Supervisor:
    """Its thread starts with it. `wake`, `cancelled` and `close` may be called from any thread.

    time_limit_s    silence that is taken for a hang; longer where a step was predicted to be long, or compiles
    cancel_limit_s  a worker that does not answer a cancel in this time is killed
    slow_start_s    a worker that has not said hello in this time is slow, and whoever waits is told
    start_limit_s   how long it may take at all (a batch system may queue it)
    run_limit_s     what a run may take of the device, whatever was predicted; what is in flight then is cut off
    """

    def __init__(
        self,
        board: Board,
        worker_command: Sequence[str],
        *,
        time_limit_s: float = 60.0,
        cancel_limit_s: float = 2.0,
        slow_start_s: float = RESTART_LIMIT_S,
        start_limit_s: float = 600.0,
        run_limit_s: float = math.inf,
    ):
        self._board = board
        self._store = board.store
        self._worker_command = list(worker_command)
        self._time_limit_s = time_limit_s
        self._cancel_limit_s = cancel_limit_s
        self._slow_start_s = min(slow_start_s, start_limit_s)
        self._start_limit_s = start_limit_s
        self._run_limit_s = run_limit_s
        self.notes: deque[str] = deque(maxlen=100)  # what the worker said that nobody asked for

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

        self._thread = threading.Thread(target=self._supervise, name="attnlab-lab", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """A run waits."""
        self._inbox.put(("wake", None, None))

    def cancelled(self) -> None:
        """A run has ended that may be the one in flight."""
        self._inbox.put(("cancel", None, None))

    def close(self) -> None:
        """Ends what runs, and the worker; `join` waits for it."""
        self._inbox.put(("close", None, None))

    def join(self, timeout: float | None = None) -> bool:
        """Blocks until the thread has ended, or `timeout` seconds; True when it has."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # One thing after the other

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
        self._board.set_worker("restarting" if again else "starting", self._restarting if again else "")
        try:
            self._process = WorkerProcess(self._worker_command, self._inbox)
        except OSError as error:
            self._on_loss(f"{error}; the command is {shlex.join(self._worker_command)}")
            return
        self._set_alarm(self._slow_start_s, self._on_slow_start)

    def _shut_down(self) -> None:
        for run_id in self._board.unfinished():
            self._board.finish(run_id, "cancelled", "the program was closed")
        if self._process is not None:
            self._process.end(grace_s=1.0)
            self._process = None
        self._board.set_worker("stopped")

    def _advance(self) -> None:
        """The worker is ready and nothing is in flight: the next step of the run, or of the next run."""
        while True:
            job = self._job
            if job is not None and not self._board.is_active(job.run_id):
                self._end_job()
            elif job is None:
                if not self._begin_job():
                    self._board.set_worker("ready")
                    return
            else:
                job.resume()
                plan = job.planner.next_step(job.points.values(), job.elapsed_s(), job.free_bytes)
                if plan is None:
                    self._board.finish(job.run_id, "done")
                    self._end_job()
                elif isinstance(plan, Untried):
                    for m in plan.measurements:
                        self._record(job, m)
                else:
                    self._send_step(job, plan)
                    return

    def _begin_job(self) -> bool:
        device = self._board.worker.device
        run = self._board.begin(device)
        if run is None:
            return False
        self._store.start(run.id, device)
        self._job = Job(run.id, Planner(run.sweep, device), device.free_bytes)
        self._deaths = 0  # those before are not this run's
        return True

    def _end_job(self) -> None:
        self._job = None
        self._board.end()

    def _send_step(self, job: Job, step: Step) -> None:
        self._steps += 1
        job.step, job.step_id, job.started = step, self._steps, ""
        job.reported = set()
        job.limit_s = self._limit_s(step)
        if job.begun is None:
            job.begun = self._board.start_clock()
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
        self._watch(job)
        if self._board.run(job.run_id).phase != step.phase:
            self._board.update(job.run_id, phase=step.phase)
        if self._held:
            self._wait_for_device(job, self._held)

    def _watch(self, job: Job) -> None:
        """Waits for a sign of life of the step in flight, and no longer than the run may take."""
        left_s = max(self._run_limit_s - job.elapsed_s(), 0.0)
        if left_s < job.limit_s:
            self._set_alarm(left_s, self._on_run_limit)
        else:
            self._set_alarm(job.limit_s, self._on_time_limit)

    def _record(self, job: Job, m: Measurement) -> None:
        """A point's newest measurement: into the store, then into sight."""
        before = job.points.get((m.path, m.seq))
        if before is not None and before.device_ms and m.device_ms is None:
            m = replace(m, reason=f"{m.reason}; the quick pass had measured {ms(before.device_ms)}")
        if not m.foreseen:
            m = replace(m, reason=with_remedy(m.reason, remedy(m.status, m.reason)))
        self._store.event(job.run_id, "measurement", m.to_json())
        job.points[m.path, m.seq] = m
        self._board.show(job.run_id, job.points.values())

    def _blame(self, job: Job, path: str, status: str, reason: str) -> None:
        self._record(job, Measurement.of(job.step.problem, path, status, reason=reason, phase=job.step.phase))
        job.reported.add(path)

    def _note(self, text: str) -> None:
        """What the worker said out of turn; kept for whoever looks for the cause of something."""
        logger.debug("worker: %s", text)
        self.notes.append(text)
        if self._job is not None and self._job.notes < KEPT_NOTES:
            self._job.notes += 1
            self._store.event(self._job.run_id, "note", {"text": text})

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
        if self._board.is_active(job.run_id):
            job.resume()
            self._watch(job)
        return job

    def _on_hello(self, message: dict[str, Any]) -> None:
        if self._ready:
            self._note("a second hello")
            return
        device = self._with_ceilings(Device.from_json(message["device"]))
        paths = tuple(PathStatus.from_json(status) for status in message["paths"])
        self._ready, self._alarm = True, None
        self._note_restart()
        self._board.arrived(device)
        self._board.set_worker("busy" if self._job else "ready", device=device, paths=paths)
        self._store.remember_device(self._worker_command, device, paths)
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
            self._store.event(self._job.run_id, "worker ready", {"after_s": after_s, "limit_s": self._slow_start_s})
        self._down_since = None

    def _end_on_another_device(self, job: Job, device: Device) -> None:
        """A new worker may find another device than the last one, such as the CPU where a driver has gone: no run mixes
        the two."""
        before = self._board.run(job.run_id).device
        if before.key != device.key:
            self._board.fail(
                job.run_id,
                f"{before.name} is gone or has changed: the new worker found {device.name}. What was measured stands. See"
                f" whether {'nvidia-smi still answers' if before.kind == 'cuda' else 'the machine is the same'}, then"
                " measure again",
            )

    def _with_ceilings(self, device: Device) -> Device:
        """The device with what was measured on it before, by a worker that was started the same way."""
        before = self._store.last_device(self._worker_command)
        if before is None or before[0].key != device.key:
            return device
        return replace(device, matmul_tflops=before[0].matmul_tflops, copy_tbs=before[0].copy_tbs)

    def _on_ceilings(self, message: dict[str, Any]) -> None:
        self._held = ""
        rates = tuple(map(tuple, message["matmul_tflops"]))
        device = replace(self._board.worker.device, matmul_tflops=rates, copy_tbs=message["copy_tbs"])
        with self._board.lock:  # nobody sees the one without the other
            self._board.set_worker(self._board.worker.state, self._board.worker.text, device=device)
            if (job := self._job) is not None:
                self._board.update(job.run_id, device=device)
        self._store.remember_device(self._worker_command, device, self._board.worker.paths)
        if job is not None:
            self._store.start(job.run_id, device)
            if job.step is not None:  # it waited behind the ceilings, which may have waited for the device
                job.resume()
                self._watch(job)

    def _on_path(self, message: dict[str, Any]) -> None:
        status = PathStatus.from_json(message["status"])
        if status.name not in PATHS:
            raise ValueError(f"the path is {shown(status.name)}; legal: {', '.join(PATHS)}")
        worker = self._board.worker
        paths = tuple({**{known.name: known for known in worker.paths}, status.name: status}.values())
        self._board.set_worker(worker.state, worker.text, paths=paths)
        if worker.device is not None:
            self._store.remember_device(self._worker_command, worker.device, paths)

    def _on_waiting(self, message: dict[str, Any]) -> None:
        if message.get("id") is None:  # with its ceilings, and whatever comes meanwhile waits behind them
            self._held = message["text"]
            job = self._job
        else:
            job = self._current(message)
        if job is not None and self._board.is_active(job.run_id):
            self._wait_for_device(job, message["text"])

    def _wait_for_device(self, job: Job, text: str) -> None:
        """Another process measures; that may take as long as it likes."""
        job.pause()
        self._alarm = None
        self._board.say(job.run_id, text)
        self._store.event(job.run_id, "waiting", {"text": text})

    def _on_started(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) is None:
            return
        if message["path"] not in job.step.paths:
            self._note(f"started a path that was not asked for: {message['path']!r}")
            return
        job.started = message["path"]
        self._board.say(job.run_id, f"{job.started} at sequence {job.step.seq:,}")
        self._store.event(job.run_id, "started", {"path": job.started, "seq": job.step.seq, "phase": job.step.phase})

    def _on_compiling(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) and self._board.is_active(job.run_id):
            job.limit_s = max(job.limit_s, COMPILE_LIMIT_S)
            self._watch(job)
            self._board.say(job.run_id, message["text"])
            self._store.event(job.run_id, "compiling", {"path": message["path"], "text": message["text"]})

    def _on_running(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) and self._board.is_active(job.run_id):
            job.limit_s = self._limit_s(job.step)
            self._watch(job)
            self._board.say(job.run_id, f"{message['path']} at sequence {job.step.seq:,}")

    def _limit_s(self, step: Step) -> float:
        return max(self._time_limit_s, HANG_FACTOR * step.predicted_s)

    def _on_measurement(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) is None:
            return
        m = Measurement.from_json(message["measurement"])
        if m.problem != job.step.problem or m.path not in job.step.paths or m.path in job.reported:
            self._note(f"a measurement that was not asked for: {m.path} at sequence {m.seq:,}")
            return
        m = replace(m, phase=job.step.phase)
        timed = job.planner.sweep.task == TIME
        self._record(job, screened(m, self._board.worker.device) if timed else m)
        job.reported.add(m.path)
        job.limit_s = self._limit_s(job.step)  # what compiled has compiled
        self._deaths = 0  # a fault too is one point less

    def _on_done(self, message: dict[str, Any]) -> None:
        if (job := self._current(message)) is None:
            return
        step, free_bytes = job.step, message.get("free_bytes")
        if type(free_bytes) is int and is_number(free_bytes):
            job.free_bytes = free_bytes
        if self._board.is_active(job.run_id):
            for path in step.paths:
                if path not in job.reported:
                    self._blame(job, path, "fault", "the worker ended the step without a measurement")
        job.step, self._alarm = None, None
        self._advance()  # before the store: the device waits
        self._store.event(job.run_id, "done", {"seq": step.seq, "phase": step.phase, "free_bytes": free_bytes})

    def _on_fatal(self, message: dict[str, Any]) -> None:
        self._fatal = next(iter(message["reason"].splitlines()), "it gave no reason")
        self._set_alarm(self._cancel_limit_s, self._on_death)  # it said that it exits; its end of file brings us there

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
            blamed = bool(job.in_flight) and self._board.is_active(job.run_id)
            if blamed:
                self._blame(job, job.in_flight, "fault", f"{self._fatal or f'the worker died ({how})'}; restarted")
            job.step = None
        if job is not None:
            job.pause()
            self._store.event(job.run_id, "worker died", {"reason": why})
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
        if job is not None and not self._board.is_active(job.run_id):
            self._end_job()
        elif job is not None:
            job.pause()
            self._board.say(job.run_id, self._restarting)
        self._board.set_worker("restarting", self._restarting)
        if after_s:
            self._set_alarm(after_s, self._start_worker)
        else:
            self._start_worker()

    @property
    def _kind(self) -> str:
        """What a worker is called, before the noun."""
        device = self._board.worker.device
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

    def _on_run_limit(self) -> None:
        """The run is over with what it has; the worker is told as when somebody presses Stop. One that lacks points is not
        done: it would be the answer for whoever asks on a quieter day."""
        job = self._job
        sweep = job.planner.sweep
        reason = f"the {seconds(self._run_limit_s)} that a run may take here are over"
        lacking = [(path, seq) for path in sweep.paths for seq in sweep.seqs if (path, seq) not in job.points]
        for path, seq in lacking:
            self._record(job, Measurement.of(sweep.at(seq), path, "skipped", reason=f"not measured: {reason}"))
        self._board.finish(job.run_id, "cancelled" if lacking else "done", reason)
        self._cancel_step()

    def _on_slow_start(self) -> None:
        """It is waited for, and people are told for how long: a batch system may queue it, a disk may be slow."""
        state = self._board.worker.state
        text = (
            f"{state} the {self._kind}worker takes longer than {seconds(self._slow_start_s)};"
            f" it is waited for up to {seconds(self._start_limit_s)}"
        )
        self._board.set_worker(state, text)
        if self._job is not None:
            self._board.say(self._job.run_id, text)
        self._set_alarm(self._start_limit_s - self._slow_start_s, self._on_start_limit)

    def _on_start_limit(self) -> None:
        self._kill_worker()
        self._give_up(f"the worker did not start within {seconds(self._start_limit_s)}")

    def _cancel_step(self) -> None:
        """The run in flight was cancelled: the worker gets a moment to say so, and stays warm if it does."""
        job = self._job
        if job is None or self._board.is_active(job.run_id):
            return
        if job.step is not None and self._ready:
            self._process.send({"do": "cancel"})
            self._set_alarm(self._cancel_limit_s, self._on_cancel_limit)
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
        with self._board.lock:  # nobody sees the one without the other
            self._board.set_worker("failed", reason)
            for run_id in self._board.unfinished():
                self._board.fail(run_id, reason)
            self._end_job()
