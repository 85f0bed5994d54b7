"""A script for a talk: an ordered list of steps, each a headline and what stands under it. JSON, read here and checked.

    {"title": "…", "steps": [{"headline": "…", "kind": "sweep", "preset": "comparison-512", "chart": "latency"}, …]}

A step is of one kind:

    sweep      one chart of a sweep, measured on this device: latency, memory or speedup
    trip       the bytes that standard and flash move through memory
    tiles      the walk through the score matrix
    softmax    online softmax, block by block
    exactness  errors against float64
    roofline   the points of a sweep under the roof of the device
    yours      a sweep again, of the shape that is on the sliders: the end, for questions

and may hold the fields of `FIELDS`. `preset` or `shape` is what a GPU measures. Without a GPU `cpu`, another shape, is
measured, or else `recorded`, the name of a run in attnlab/data/, is shown. ATTNLAB_TALK names a file of one's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnlab import checked, verdicts
from attnlab.paths import PATHS
from attnlab.presets import PRESETS
from attnlab.problem import AttentionProblem, ProblemError, check_whole_number
from attnlab.sweep import DEFAULT_PATHS, TASKS, Sweep, lengths_up_to

VARIABLE = "ATTNLAB_TALK"
SHIPPED = Path(__file__).parent / "talks" / "default.json"
SWEPT = ("sweep", "roofline", "yours")  # kinds that time a sweep
ON_PAPER = ("trip", "tiles")  # kinds that are arithmetic on a shape
KINDS = ("sweep", "trip", "tiles", "softmax", "exactness", "roofline", "yours")
CHARTS = ("latency", "memory", "speedup")
SCALES = ("log", "linear")
FIELDS = ("headline", "kind", "preset", "shape", "cpu", "recorded", "chart", "scale", "paths", "shown", "try_oom")
SHAPE_FIELDS = (
    "batch", "heads", "head_dim", "longest", "dtype", "kv_heads", "causal", "window", "direction", "queries",
)  # fmt: skip
STEPS_MAX = 40
HEADLINE_MAX = 90  # characters: two lines across a hall
CPU_BUDGET_S = 10.0  # nobody waits longer for a point to be narrower
FILE_MAX_BYTES = 1 << 20
EXACTNESS = TASKS[1]


class TalkRefused(ValueError):
    """A file that is no script. The message is one line for people, and names what is legal."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """`gpu` and `cpu` are what is measured on either; None where nothing is. `shown`: so many paths are there at first."""

    headline: str
    kind: str
    gpu: Sweep | None = None
    cpu: Sweep | None = None
    recorded: str = ""
    chart: str = CHARTS[0]
    scale: str = SCALES[0]
    shown: int | None = None  # all of them

    def sweep(self, device_kind: str) -> Sweep | None:
        """What this step measures on a device ("cuda", "cpu"); None where it measures nothing, or shows what is recorded."""
        if self.kind == EXACTNESS:
            return verdicts.usual(device_kind, EXACTNESS)
        if self.kind not in SWEPT:
            return None
        if device_kind == "cuda":
            return self.gpu
        return self.cpu or (None if self.recorded else self.gpu)


@dataclass(frozen=True, kw_only=True)
class Talk:
    title: str
    steps: tuple[Step, ...]

    def place(self, number: int) -> str:
        """ "3 / 8"; `number` counts from 1."""
        return f"{number} / {len(self.steps)}"

    def yours(self) -> int | None:
        """The number of the first step that is the audience's."""
        return next((n for n, step in enumerate(self.steps, start=1) if step.kind == "yours"), None)


def chosen(environment: Callable[[str, str], str] = os.environ.get) -> tuple[Talk, str]:
    """(the talk of ATTNLAB_TALK, ""), or (the one that ships, why it is not that one, in one line)."""
    own = environment(VARIABLE, "").strip()
    if not own:
        return read(SHIPPED), ""
    try:
        return read(Path(own).expanduser()), ""
    except (TalkRefused, RuntimeError) as error:  # `~` of nobody
        return read(SHIPPED), f"{VARIABLE}: {error}. The talk that ships with AttnLab is shown instead."


def read(path: Path) -> Talk:
    """Raises TalkRefused."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TalkRefused(f"{checked.shown(str(path))} cannot be read ({why}); legal: a JSON file") from None
    if len(text) > FILE_MAX_BYTES:
        raise TalkRefused(f"{path.name} is larger than {FILE_MAX_BYTES >> 20} MiB; legal: a list of steps")
    try:
        data = checked.json_value(text)
    except ValueError as error:  # UnicodeDecodeError is one
        raise TalkRefused(f"{path.name} is not JSON ({error})") from None
    return from_json(data)


def from_json(data: Any) -> Talk:
    """Raises TalkRefused."""
    steps = data.get("steps") if isinstance(data, dict) else None
    if not isinstance(steps, list) or not 1 <= len(steps) <= STEPS_MAX:
        raise TalkRefused(f'this is no talk; legal: a JSON object with "steps", a list of 1 to {STEPS_MAX} steps')
    for name in data:
        if name not in ("title", "steps"):
            raise TalkRefused(f"the talk has an unknown field {checked.shown(name)}; legal: title, steps")
    title = data.get("title", "A talk")
    if not _is_line(title):
        raise TalkRefused(f"the talk's title is {checked.shown(title)}; legal: 1 to {HEADLINE_MAX} characters")
    return Talk(title=title, steps=tuple(_step(step, f"step {n}") for n, step in enumerate(steps, start=1)))


def _is_line(value: Any) -> bool:
    return checked.is_text(value) and 1 <= len(value.strip()) <= HEADLINE_MAX and value.isprintable()


def _step(data: Any, where: str) -> Step:
    if not isinstance(data, dict):
        raise TalkRefused(f"{where} is {checked.shown(data)}; legal: an object with {', '.join(FIELDS)}")
    for name in data:
        if name not in FIELDS:
            raise TalkRefused(f"{where} has an unknown field {checked.shown(name)}; legal: {', '.join(FIELDS)}")
    if not _is_line(data.get("headline")):
        said = checked.shown(data.get("headline"))
        raise TalkRefused(f"{where}'s headline is {said}; legal: 1 to {HEADLINE_MAX} characters in one line")
    for name, legal in (("kind", KINDS), ("chart", CHARTS), ("scale", SCALES), ("preset", tuple(PRESETS))):
        if (name in data or name == "kind") and data.get(name) not in legal:
            raise TalkRefused(f"{where}'s {name} is {checked.shown(data.get(name))}; legal: {', '.join(legal)}")
    if type(data.get("try_oom", False)) is not bool:
        raise TalkRefused(f"{where}'s try_oom is {checked.shown(data['try_oom'])}; legal: true, false")
    if "recorded" in data and not _is_line(data["recorded"]):
        said = checked.shown(data["recorded"])
        raise TalkRefused(f"{where}'s recorded is {said}; legal: the name of a file of attnlab/data/ without .json")
    if "preset" in data and "shape" in data:
        raise TalkRefused(f"{where} has a preset and a shape; legal: one of them")
    kind, paths = data["kind"], _paths(data.get("paths", list(DEFAULT_PATHS)), where)
    shown = data.get("shown")
    if shown is not None and (type(shown) is not int or not 1 <= shown <= len(paths)):
        raise TalkRefused(f"{where}'s shown is {checked.shown(shown)}; legal: whole numbers from 1 to {len(paths)}")
    try:
        gpu = PRESETS[data["preset"]].sweep(paths) if "preset" in data else None
        gpu = _sweep(data["shape"], paths, f"{where}'s shape") if "shape" in data else gpu
        cpu = _sweep(data["cpu"], paths, f"{where}'s cpu") if "cpu" in data else None
        cpu = replace(cpu, budget_s=CPU_BUDGET_S) if cpu else None
        if gpu is not None:
            gpu = replace(gpu, try_oom=data.get("try_oom", False))
    except ProblemError as error:
        raise TalkRefused(f"{where}: {error}") from None
    if gpu is None and kind in (*SWEPT, *ON_PAPER):
        raise TalkRefused(f"{where} is of kind {kind} and says of what; legal: a preset or a shape beside it")
    return Step(
        headline=data["headline"].strip(), kind=kind, gpu=gpu, cpu=cpu, recorded=data.get("recorded", ""),
        chart=data.get("chart", CHARTS[0]), scale=data.get("scale", SCALES[0]), shown=shown,
    )  # fmt: skip


def _paths(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or any(type(p) is not str or p not in PATHS for p in value):
        raise TalkRefused(f"{where}'s paths is {checked.shown(value)}; legal: a list of {', '.join(PATHS)}")
    return tuple(dict.fromkeys(value))


def _sweep(data: Any, paths: tuple[str, ...], where: str) -> Sweep:
    """Raises TalkRefused, ProblemError."""
    if not isinstance(data, dict):
        raise TalkRefused(f"{where} is {checked.shown(data)}; legal: an object with {', '.join(SHAPE_FIELDS)}")
    for name in data:
        if name not in SHAPE_FIELDS:
            raise TalkRefused(f"{where} has an unknown field {checked.shown(name)}; legal: {', '.join(SHAPE_FIELDS)}")
    for name in SHAPE_FIELDS[:4]:
        if name not in data:
            raise TalkRefused(f"{where} lacks {name}; legal: an object with {', '.join(SHAPE_FIELDS)}")
    fields = {name: value for name, value in data.items() if name not in ("longest", "queries")}
    check_whole_number("longest", data["longest"], 1 << 24)
    problem = AttentionProblem(seq_q=data["longest"], **fields)
    if "queries" in data:
        check_whole_number("queries", data["queries"], 1 << 24)
    return Sweep(problem=problem, seqs=lengths_up_to(problem.seq_q), seq_q=data.get("queries"), paths=paths)
