"""One run of a sweep, finished or not, as pages, files and sentences see it. Frozen; a new one for each change."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnlab.checked import is_text, shown
from attnlab.device import Device, PathStatus
from attnlab.measurement import UNREACHED, Measurement
from attnlab.sweep import Sweep

RUN_STATES = ("queued", "running", "done", "cancelled", "failed")
NAME_MAX = 100  # characters
NOTE_MAX = 4_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """`measurements` holds the newest one for each (path, seq), in the order of the sweep's paths, then seq."""

    id: str
    sweep: Sweep
    state: str  # one of RUN_STATES
    created: str  # ISO 8601, UTC
    seconds: float = 0.0  # wall time since it started measuring; the whole when it has ended
    phase: str = ""  # quick, refined
    activity: str = ""  # what happens right now, in words: "compiling flash-attn-4", "restarting the worker"
    reason: str = ""  # why it failed or was cancelled
    device: Device | None = None
    measurements: tuple[Measurement, ...] = ()
    recorded: bool = False  # opened from a file, measured elsewhere or earlier
    name: str = ""  # given by people, and so is the note; both as `label` makes them
    note: str = ""

    @property
    def active(self) -> bool:
        return self.state in ("queued", "running")

    @property
    def mark(self) -> str:
        """What must stand beside every number of a recorded run: "recorded on NVIDIA H200, 2026-11-30"; else empty."""
        if not self.recorded:
            return ""
        return f"recorded on {self.device.name if self.device else 'unknown device'}, {self.created[:10]}"

    @property
    def reached(self) -> tuple[Measurement, ...]:
        """The measurements that somebody began. Of the others there is one thing to say, and `reason` says it."""
        return tuple(m for m in self.measurements if m.status != UNREACHED)

    def get(self, path: str, seq: int) -> Measurement | None:
        return next((m for m in self.measurements if m.path == path and m.seq == seq), None)


def label(name: object, note: object) -> tuple[str, str]:
    """A name, in one line, and a note, as they are kept, wherever they come from. Raises ValueError."""
    for what, text, most in (("name", name, NAME_MAX), ("note", note, NOTE_MAX)):
        if not is_text(text) or len(text) > most:
            raise ValueError(f"the {what} is {shown(text)}; legal: text of at most {most:,} characters")
    return " ".join(name.split()), note.strip()


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """The worker as the page shows it."""

    state: str  # stopped, starting, ready, busy, restarting, failed
    text: str = ""  # one plain line, for failed what to do
    device: Device | None = None
    paths: tuple[PathStatus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What Lab.snapshot returns: the worker, the queue and one run. Equal versions are equal snapshots."""

    version: int
    worker: WorkerState
    run: Run | None = None
    queue: tuple[str, ...] = field(default=())  # run ids still to start
