"""Runs the children, a few side by side, each with a time limit, and holds what they answered.

    examination = Examination()
    examination.start()
    examination.look().findings      at once, as often as need be: what is known by now
    examination.wait()

A child may hang, die or talk nonsense: that is an answer. Whoever holds the examination is not touched by it.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from attnlab import protocol
from attnlab.doctor.finding import Answer, Finding
from attnlab.doctor.judgement import CHILDREN, NOT_STARTED, Machine, findings, skip
from attnlab.doctor.summary import doctor_line
from attnlab.lab import default_worker_command
from attnlab.process import ROOT, WorkerProcess

logger = logging.getLogger(__name__)

SIDE_BY_SIDE = 3  # each imports PyTorch: more of them wait for the disk and the cores
LIMIT_S = 60.0
LIMITS_S = {"flash-attn-4": 240.0, "triton": 120.0}  # which compile at their first launch
QUEUE_S = 600.0  # more where something stands in front of the worker: a batch system may queue it
STOP_POLL_S = 0.2
MAX_LINES = 1000
ENDED = "was ended, because nobody waits for it"
FIRST = ("system", "torch")  # the others wait for these, to know whether there is anything to try
HERE = ("browser",)  # runs where the page does, the others where the worker does

Ask = Callable[[str, threading.Event], Answer]


@dataclass(frozen=True)
class Look:
    """What is known by now. Equal versions are equal looks."""

    version: int
    running: bool
    when: str  # ISO 8601, UTC: when it was started; "" when it never was
    findings: tuple[Finding, ...]
    summary: str
    usable: bool  # the lab can measure something
    packages: Mapping[str, str]  # version by distribution
    python: str


class Examination:
    """See the module's opening. All methods may be called from any thread.

    ask  (child's name, event that is set when nobody waits any more) → its answer; a child process when None
    """

    def __init__(self, ask: Ask | None = None):
        self._ask = ask or ask_child
        self._changed = threading.Condition()
        self._answers: dict[str, Answer] = {}
        self._version = 0
        self._when = ""
        self._running = False
        self._stop = threading.Event()
        self._slots = threading.BoundedSemaphore(SIDE_BY_SIDE)

    def start(self) -> None:
        """Asks all children anew; nothing happens while that goes on already."""
        with self._changed:
            if self._running:
                return
            self._running, self._answers, self._version = True, {}, self._version + 1
            self._when = datetime.now(timezone.utc).isoformat(timespec="seconds")
            self._stop = threading.Event()
        for name in CHILDREN:
            threading.Thread(target=self._examine, args=(name,), name=f"attnlab-doctor-{name}", daemon=True).start()

    def look(self) -> Look:
        with self._changed:
            answers, version, running, when = dict(self._answers), self._version, self._running, self._when
        machine = Machine(answers.get("system", Answer()), answers.get("torch", Answer()))
        found = findings(answers, pip_command())
        system = machine.system
        return Look(version, running, when, found, doctor_line(machine, found), machine.usable,
                    system.get("packages", {}), system.get("python"))  # fmt: skip

    def wait(self, timeout: float | None = None) -> Look:
        """Blocks until all children have answered, or `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout)
        return self.look()

    def close(self) -> None:
        """Ends the children that still run."""
        self._stop.set()

    def _examine(self, name: str) -> None:
        """Runs on a thread of its own, one a child."""
        if name not in FIRST:
            with self._changed:
                self._changed.wait_for(lambda: all(first in self._answers for first in FIRST))
                machine = Machine(*(self._answers[first] for first in FIRST))
            if why := skip(name, machine):
                self._put(name, Answer({"skipped": why}))
                return
        with self._slots:
            try:
                answer = self._ask(name, self._stop)
            except Exception as error:  # a mistake here must not leave a page waiting for ever
                logger.exception("the doctor cannot ask %s", name)
                answer = Answer(end=f"could not be asked: {type(error).__name__}: {error}")
        self._put(name, answer)

    def _put(self, name: str, answer: Answer) -> None:
        with self._changed:
            self._answers[name] = answer
            self._version += 1
            self._running = len(self._answers) < len(CHILDREN)
            self._changed.notify_all()


def ask_child(name: str, stop: threading.Event) -> Answer:
    """Runs one child to its end, or to its limit, or until `stop` is set."""
    command = child_command(name)
    limit_s = LIMITS_S.get(name, LIMIT_S) + (0.0 if command[0] == sys.executable else QUEUE_S)
    return ask_command(command, limit_s, stop)


def child_command(name: str) -> list[str]:
    """The probe is started as the worker is, so that it sees what the worker sees."""
    words = [sys.executable, "-u", "-m", "attnlab.worker"] if name in HERE else default_worker_command()
    return [*words[:-1], "attnlab.measure.probes", name]


def ask_command(command: Sequence[str], limit_s: float, stop: threading.Event) -> Answer:
    """What a command says in JSON lines, until {"done": true}; what stands on the other lines is nonsense and passed over."""
    if stop.is_set():
        return Answer(end=ENDED)
    inbox: queue.Queue[tuple[str, WorkerProcess, bytes | None]] = queue.Queue()
    try:
        process = WorkerProcess(command, inbox)
    except OSError as error:
        return Answer(end=f"{NOT_STARTED}: {error}")
    facts: dict[str, Any] = {}
    until, lines, end = time.monotonic() + limit_s, 0, ""
    while not end:
        try:
            line = inbox.get(timeout=STOP_POLL_S)[2]
        except queue.Empty:
            if stop.is_set():
                end = ENDED
            elif time.monotonic() > until:
                end = f"gave no answer within {limit_s:g} s"
            continue
        lines += 1
        if line is None:
            return Answer(facts, f"ended with {process.end(grace_s=1.0)}")
        facts |= protocol.parse(line.decode("utf-8", "replace")) or {}
        if facts.pop("done", False):
            process.end(grace_s=1.0)
            return Answer(facts)
        if lines > MAX_LINES:
            end = "talked without end"
    process.end()
    return Answer(facts, end)


def pip_command() -> str:
    """pip of the environment that runs this: as the README makes it, or whichever is active."""
    own = ROOT / ".venv"
    return ".venv/bin/python -m pip" if sys.prefix == str(own) else "python -m pip"
