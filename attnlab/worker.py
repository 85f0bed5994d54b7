"""The worker: `python -m attnlab.worker [--device cuda:0]`, the only process that imports torch and touches a device.

It reads commands on stdin and answers on stdout (attnlab.protocol). It keeps a private copy of stdout for that and points
descriptor 1 at stderr, so that what a library prints cannot corrupt the stream. It ends at once when its stdin ends, so
that it cannot outlive the program that started it. While it measures it holds a lock file for the device, so that two
programs cannot measure on one card at once. When idle it tries the installed paths one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from attnlab import protocol
from attnlab.measurement import Measurement
from attnlab.paths import PATHS
from attnlab.planner import REFINED_SAMPLES
from attnlab.problem import AttentionProblem
from attnlab.sweep import default_sweep

FATAL_EXIT = 3
LOCK_POLL_S = 0.05
LOCKS = "ATTNLAB_LOCKS"  # the folder of the locks; else /tmp, one for all whatever their TMPDIR says
PR_SET_PDEATHSIG = 1  # prctl(2)
IDLE_S = 2.0  # so long after the last command the allocator's cache is given back


class Worker:
    """One device. `run` returns when the device is lost; the process then exits and is replaced."""

    def __init__(self, out: IO[str], device_name: str):
        import torch

        from attnlab.measure.point import Bench

        self.out = out
        self.device = torch.device(
            legal_device(device_name, torch.cuda.device_count() if torch.cuda.is_available() else 0)
        )
        self.bench = Bench(self.device)
        self.facts = self.bench.facts
        self.commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self.received = 0  # commands read so far
        self.cancelled_through = 0  # those up to this one are cancelled
        self.serving = 0  # the one being served
        self.step_id: Any = None

    def free_bytes(self) -> int:
        """What a new point could take."""
        from attnlab.measure.memory import free_bytes

        return free_bytes(self.device)

    def send(self, event: str, **fields: Any) -> None:
        protocol.send(self.out, {"event": event, **fields})

    def read_commands(self, stdin: IO[str]) -> None:
        """Runs on a thread of its own, so that a cancel and the end of stdin are seen while a kernel runs."""
        for line in stdin:
            command = protocol.parse(line)
            if command is None:
                print(f"attnlab.worker: not a command: {line[:100]!r}", file=sys.stderr)
            elif command.get("do") == "cancel":
                self.cancelled_through = self.received
            else:
                self.received += 1
                self.commands.put(command)
        os._exit(0)  # whoever started this is gone; a kernel in flight must not keep the process alive

    def run(self) -> str:
        """Serves commands for ever; returns the reason when it cannot go on."""
        from attnlab.measure.memory import release
        from attnlab.measure.trial import DeviceLost

        statuses = [self.bench.trials.paths[name].status().to_json() for name in PATHS]
        self.send("hello", pid=os.getpid(), device=self.facts.to_json(), paths=statuses)
        probing, holds_memory = self.probe(), False
        try:
            while True:
                try:
                    command = self.commands.get(block=probing is None, timeout=IDLE_S if holds_memory else None)
                except queue.Empty:
                    if probing is not None and next(probing, None) is None:
                        probing = None
                    elif holds_memory:  # what is cached for the next point, up to all of the card: others may need it
                        release(self.device)
                        holds_memory = False
                    continue
                self.serve(command)
                holds_memory = True
        except DeviceLost as lost:
            return str(lost)

    def probe(self) -> Iterator[bool]:
        """Tries each path once with the default problem, one for each idle moment; not those that would compile for seconds,
        while a visitor may be about to ask for something."""
        problem = default_sweep(self.device.type).problem
        for name in PATHS:
            if self.bench.trials.paths[name].compiles:
                continue
            self.send("path", status=self.bench.trials.status(name, problem).to_json())
            yield True

    def serve(self, command: dict[str, Any]) -> None:
        from attnlab.measure.timing import Cancelled
        from attnlab.measure.trial import DeviceLost, device_fault
        from attnlab.paths.base import first_line

        self.step_id = command.get("id")
        self.serving += 1
        cancelled = False
        try:
            if command.get("do") == "ceilings":
                self.take_ceilings(command)
                return
            problem = AttentionProblem.from_json(command.get("problem"))
            with self.lock():
                if command.get("do") == "measure":
                    self.measure(problem, command)
                elif command.get("do") == "examine":
                    self.examine(problem, command)
                elif command.get("do") == "compare":
                    self.compare(problem, command)
                else:
                    print(f"attnlab.worker: unknown command {command.get('do')!r}", file=sys.stderr)
        except Cancelled:
            cancelled = True
        except DeviceLost:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # ProblemError is a ValueError
            print(f"attnlab.worker: bad command: {first_line(error)}", file=sys.stderr)
        except RuntimeError as error:  # what belongs to no point: ceilings and rounds, where memory may run out too
            if fault := device_fault(self.device):
                raise DeviceLost(fault) from None
            print(f"attnlab.worker: {command.get('do')} failed: {first_line(error)}", file=sys.stderr)
            if command.get("do") == "compare":
                self.send("round", id=self.step_id, step=0, reason=first_line(error))
        self.send("done", id=self.step_id, cancelled=cancelled, free_bytes=self.free_bytes())

    def check(self) -> None:
        from attnlab.measure.timing import Cancelled

        if self.serving <= self.cancelled_through:
            raise Cancelled

    def take_ceilings(self, command: dict[str, Any]) -> None:
        """Those that were measured here before, or else measures them and says so."""
        from attnlab.measure import ceilings
        from attnlab.measure.memory import release

        rates, copy_tbs = command.get("matmul_tflops"), command.get("copy_tbs")
        if rates is None:
            with self.lock():
                free = self.free_bytes()
                rates = ceilings.matmul_tflops(self.device, self.bench.timer, free)
                copy_tbs = ceilings.copy_tbs(self.device, self.bench.timer, free)
            release(self.device)
            self.send("ceilings", matmul_tflops=rates, copy_tbs=copy_tbs)
        self.bench.facts = replace(self.facts, matmul_tflops=tuple(map(tuple, rates)), copy_tbs=copy_tbs)

    def measure(self, problem: AttentionProblem, command: dict[str, Any]) -> None:
        from attnlab.measure.series import Stop

        self.bench.step(
            problem,
            [name for name in command["paths"] if name in PATHS],
            phase=command["phase"],
            stop=Stop(command["budget_s"], command["min_samples"], command["target"], wanted=REFINED_SAMPLES),
            check=self.check,
            say=self.say,
            l2=command.get("l2", "cold"),
        )

    def examine(self, problem: AttentionProblem, command: dict[str, Any]) -> None:
        self.bench.examine(
            problem,
            [name for name in command["paths"] if name in PATHS],
            task=command["task"],
            check=self.check,
            say=self.say,
        )

    def say(self, event: str, **fields: Any) -> None:
        """What the step in flight says. A kernel may fail after its call has returned, and the next call then gets the
        error: so nothing is told of a path before all that it queued, on whatever stream, has ended. Raises DeviceLost."""
        from attnlab.measure.trial import DeviceLost, device_fault

        done = event == "measurement" and fields["measurement"]["status"] != "fault"
        lost = device_fault(self.device) if done else ""
        if not lost:
            self.send(event, id=self.step_id, **fields)
            return

        m = Measurement.from_json(fields["measurement"])
        reason = f"CUDA fault after the call, worker restarted: {lost}"
        late = Measurement.of(m.problem, m.path, "fault", provider=m.provider, phase=m.phase, reason=reason)
        self.send(event, id=self.step_id, measurement=late.to_json())
        raise DeviceLost(f"{m.path}: {lost}")

    def compare(self, problem: AttentionProblem, command: dict[str, Any]) -> None:
        """Standard and flash back to back, one wall-clock figure for each round."""
        from attnlab.measure.compare import rounds

        for result in rounds(self.bench, problem, command["flash"], command["steps"], self.check):
            self.send("round", id=self.step_id, **result)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the device's lock file; says who holds it while waiting. Released by the system if this process dies."""
        descriptor = open_lock(Path(os.environ.get(LOCKS, "/tmp")) / f"attnlab-{self.facts.uuid or self.facts.kind}.lock")
        if descriptor is None:
            yield
            return
        told = False
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                    if not told:
                        self.send("waiting", id=self.step_id, text=f"process {holder} is measuring on this device")
                        told = True
                    self.check()
                    time.sleep(LOCK_POLL_S)
            with contextlib.suppress(OSError):  # another user's file is locked all the same, but not written
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def legal_device(name: str, cards: int) -> str:
    """The device to measure on, the first of `cards` GPUs when the name is empty, else the CPU. Raises RuntimeError for one
    that is not there."""
    legal = [*(f"cuda:{i}" for i in range(cards)), "cpu"]
    name = {"": legal[0], "cuda": "cuda:0"}.get(name, name)
    if name not in legal:
        raise RuntimeError(f"device is {name!r}; legal here: {', '.join(legal)}")
    return name


def die_with(parent: int) -> None:
    """Has the system kill this process when its parent dies, even where it hangs in native code and no thread of it would
    see its input end (Linux; elsewhere the end of the input has to do)."""
    with contextlib.suppress(OSError, AttributeError):  # a C library without the call
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it was asked for
        os._exit(0)


def open_lock(path: Path) -> int | None:
    """A descriptor of the lock file, whoever made it; None, and a word on stderr, when it cannot be had."""
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.fchmod(made, 0o666)  # past the umask: other users of this device lock it too
            return made
        try:
            return os.open(path, os.O_RDWR)
        except PermissionError:
            return os.open(path, os.O_RDONLY)
    except OSError as error:
        print(f"attnlab.worker: measuring without a lock on the device: {error}", file=sys.stderr)
        return None


def main() -> int:
    die_with(os.getppid())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    parser = argparse.ArgumentParser(prog="python -m attnlab.worker", description=__doc__)
    parser.add_argument(
        "--device", default=os.environ.get("ATTNLAB_DEVICE", ""), help="cuda:0, cpu, …; default: the first GPU"
    )
    arguments = parser.parse_args()
    # Libraries warn about what only their authors can mend; paths.sdpa listens where a warning explains a refusal.
    warnings.simplefilter("ignore")
    try:
        worker = Worker(out, arguments.device)
    except ImportError as error:
        reason = f"PyTorch cannot be loaded: {error}"
    except RuntimeError as error:
        reason = f"the device cannot be used: {error}"
    else:
        threading.Thread(target=worker.read_commands, args=(sys.stdin,), daemon=True).start()
        reason = worker.run()
    protocol.send(out, {"event": "fatal", "reason": reason})
    os._exit(FATAL_EXIT)  # a lost CUDA context can hang the ordinary way out


if __name__ == "__main__":
    main()
