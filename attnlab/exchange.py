"""Runs out as files and in again: what each format is called, and files from other machines taken into the store.

Whatever comes in passes export.run_from_text, the one set of rules for all that comes from outside: JSON and nothing else,
of a bounded size, every field checked. A run is known again by its id. Nothing in a file is a path, and none is opened
because of what a file says.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from attnlab.checked import shown
from attnlab.export import MAX_TEXT_BYTES, ImportRefused, run_from_text
from attnlab.run import Run
from attnlab.store import Store

MAX_FILES = 10_000  # of a folder
WORDS = {
    "added": "imported",
    "known": "is here already, nothing is changed",
    "restored": "is here again: it had been deleted",
    "refused": "is refused",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one file. `status` is a key of WORDS; `why` the refusal, "" else."""

    name: str
    status: str
    why: str = ""
    run: Run | None = None

    @property
    def text(self) -> str:
        """One line for people; names in a file are repeated in quotes."""
        why = f": {self.why}" if self.why else f" ({self.run.mark})" if self.run else ""
        return f"{shown(self.name)} {WORDS[self.status]}{why}"


def take(store: Store, name: str, content: bytes, shipped: Collection[str] = ()) -> Outcome:
    """Takes what one file holds into the store. `shipped`: ids of the runs that come with AttnLab."""
    try:
        run = run_from_text(content)
    except ImportRefused as refusal:
        return Outcome(name, "refused", str(refusal))
    return Outcome(name, "known" if run.id in shipped else store.add(run), run=run)


def take_from(store: Store, path: Path, shipped: Collection[str] = ()) -> list[Outcome]:
    """Takes a file, or every *.json of a folder, in the order of their names. What cannot be read is refused."""
    try:
        folder = path.is_dir()
    except (OSError, ValueError):  # a name that is too long, a zero byte: said of the file
        folder = False
    if not folder:
        return [_take_file(store, path, shipped)]
    files = sorted(path.glob("*.json"))
    if not files:
        return [Outcome(str(path), "refused", "there is no *.json in this folder")]
    taken = [_take_file(store, file, shipped) for file in files[:MAX_FILES]]
    left = len(files) - MAX_FILES
    return taken + [Outcome(str(path), "refused", f"{left:,} files more than {MAX_FILES:,}")] * (left > 0)


def _take_file(store: Store, path: Path, shipped: Collection[str]) -> Outcome:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEXT_BYTES + 1)  # a larger one is refused, not read
    except (OSError, ValueError) as error:  # a zero byte is a ValueError
        return Outcome(path.name, "refused", getattr(error, "strerror", None) or str(error))
    return take(store, path.name, content, shipped)


def file_name(run: Run, ending: str) -> str:
    """What a file of the run is called: device, day and the end of its id, in letters that every system takes."""
    device = run.device.name if run.device else "run"
    words = re.sub(r"[^a-z0-9]+", "-", f"{device} {run.created[:10]} {run.id[-8:]}".lower()).strip("-")
    return f"attnlab-{words}.{ending}"
