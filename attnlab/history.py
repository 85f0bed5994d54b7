"""The list of runs: what it says of each, what is searched, and by what it is cut down.

An entry holds a run without its points: a list of thousands opens without loading one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from attnlab import summary, units
from attnlab.measurement import STATUS_WORDS
from attnlab.run import Run
from attnlab.sweep import TIME, Sweep

UNKNOWN = "unknown device"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run of the list. `run` is without measurements."""

    run: Run
    sentence: str = ""  # what it shows, once that is known
    points: Mapping[str, int] = field(default_factory=dict)  # how many by status
    ships: bool = False  # recorded, comes with AttnLab: nothing of it can be changed

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def note(self) -> str:
        return self.run.note

    @property
    def device(self) -> str:
        return self.run.device.name if self.run.device else UNKNOWN

    @cached_property  # a list of thousands asks every entry, in each run of the page
    def shape(self) -> str:
        return shape(self.run.sweep)

    @property
    def versions(self) -> str:
        """ "torch 2.11.0 · CUDA 13.0 · driver 570.1 · flash-attn-4 4.0.0b36": what is known of it."""
        device = self.run.device
        if device is None:
            return ""
        named = (("torch", device.torch), ("CUDA", device.cuda), ("driver", device.driver), *device.packages)
        return " · ".join(f"{name} {version}" for name, version in named if version)

    @property
    def status(self) -> str:
        """Its points by status, and its state where that is not done: "16 ok, 1 out of memory", "cancelled: 3 ok"."""
        words = [
            f"{n:,} {STATUS_WORDS[status]}" for status, n in sorted(self.points.items(), key=lambda p: p[0] != "ok")
        ]
        state = [] if words and self.run.state == "done" else [self.run.state]
        return ": ".join([*state, *([", ".join(words)] if words else [])])

    @property
    def title(self) -> str:
        """What it is called where there is room for little: its name, else its device and day."""
        return self.name or f"{self.device}, {self.run.created[:10]}"

    @cached_property
    def text(self) -> str:
        """All that a search looks through, in lower case."""
        parts = (self.name, self.note, self.sentence, self.device, self.versions, self.shape, self.status, self.run.id,
                 self.run.created, self.run.sweep.task, *self.run.sweep.paths)  # fmt: skip
        return "\n".join(parts).lower()


def entry_of(run: Run, *, name: str = "", ships: bool = False) -> Entry:
    """The entry of a run that is at hand with its points."""
    points: dict[str, int] = {}
    for m in run.measurements:
        points[m.status] = points.get(m.status, 0) + 1
    bare = replace(run, measurements=(), name=name or run.name)
    return Entry(run=bare, sentence=summary.sentence(run), points=points, ships=ships)


def shape(sweep: Sweep) -> str:
    """The problem of a sweep without its sequence lengths, and what is asked of it where that is not the time."""
    queries = [] if sweep.seq_q is None else [f"queries {units.sequence(sweep.seq_q)}"]
    look = [] if sweep.task == TIME else [sweep.task]
    return ", ".join([units.shape(sweep.problem), *queries, *look])


def chosen(
    entries: Iterable[Entry],
    search: str = "",
    devices: Collection[str] = (),
    paths: Collection[str] = (),
    shapes: Collection[str] = (),
) -> list[Entry]:
    """The entries that hold every word of `search`, of one of the devices, with one of the paths, of one of the shapes; an
    empty choice leaves all."""
    words = search.lower().split()
    return [
        entry
        for entry in entries
        if (not devices or entry.device in devices)
        and (not paths or set(paths) & set(entry.run.sweep.paths))
        and (not shapes or entry.shape in shapes)
        and (not words or all(word in entry.text for word in words))
    ]
