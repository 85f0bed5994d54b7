"""Runs as files: strict JSON both ways, and the recorded runs that ship in attnlab/data/.

    {"run": {"format": 1, "id", "created", "state", "seconds", "phase", "reason", "sweep": {…}, "device": {…},
             "name", "note"},
     "measurements": [{"path", "status", "device_ms", "batch", "seq_q", …}, …]}

A name and a note are there where people gave one. What is not known is null, never 0, NaN or Infinity. A file from outside is
checked field by field before anything is drawn from it; what is wrong with it is said in one line. Tables for other programs
are attnlab.tabular's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from attnlab.checked import check, is_moment, json_value, shown
from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.run import RUN_STATES, Run, label
from attnlab.sweep import TIME, Sweep

FORMAT = 1
MAX_TEXT_BYTES = 32 << 20
MAX_MEASUREMENTS = 10_000
HEAD = {"format", "id", "created", "state", "seconds", "phase", "reason", "sweep", "device", "name", "note"}
DATA = Path(__file__).parent / "data"


class ImportRefused(ValueError):
    """A file that is no run. The message is one line for people."""


def run_to_json(run: Run) -> dict[str, Any]:
    """The run as in the module's opening; strict JSON values only."""
    return {
        "run": {
            "format": FORMAT,
            "id": run.id,
            "created": run.created,
            "state": run.state,
            "seconds": run.seconds,
            "phase": run.phase,
            "reason": run.reason,
            "sweep": run.sweep.to_json(),
            "device": None if run.device is None else run.device.to_json(),
            # Left out where there is none: a version that knows of neither then still reads the file.
            **{field: text for field, text in (("name", run.name), ("note", run.note)) if text},
        },
        "measurements": [m.to_json() for m in run.measurements],
    }


def run_to_text(run: Run) -> str:
    """Strict JSON, one measurement a line so that two files can be compared. Raises ValueError for NaN and infinity."""
    data = run_to_json(run)
    head = json.dumps(data["run"], allow_nan=False, ensure_ascii=False, indent=1)
    rows = ",\n".join(json.dumps(m, allow_nan=False, ensure_ascii=False) for m in data["measurements"])
    return f'{{"run": {head},\n"measurements": [\n{rows}\n]}}\n'


def write_run(run: Run, path: Path) -> None:
    """Writes run_to_text to `path`, whole or not at all. Raises OSError; then what stood there before still does."""
    text = run_to_text(run)
    path = path.resolve()
    if path.exists() and not path.is_file():  # a pipe or a terminal takes no other in its place
        path.write_text(text, encoding="utf-8")
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def run_from_text(text: str | bytes, *, recorded: bool = True) -> Run:
    """Reads what run_to_text wrote. Raises ImportRefused."""
    if len(text) > MAX_TEXT_BYTES:
        raise ImportRefused(f"the file is larger than {MAX_TEXT_BYTES >> 20} MiB; legal: a run that AttnLab exported")
    try:
        data = json_value(text)
    except ValueError as error:  # UnicodeDecodeError is one
        raise ImportRefused(f"the file is not JSON ({error})") from error
    return run_from_json(data, recorded=recorded)


def run_from_json(data: Any, *, recorded: bool = True) -> Run:
    """Reads what run_to_json wrote, every field checked. Raises ImportRefused.

    A run that was still going when it was exported comes back as `cancelled`: nobody is measuring it any more.
    """
    try:
        return _run(data, recorded)
    except ImportRefused:
        raise
    except ValueError as error:  # of a rule that holds wherever such a thing comes from
        raise ImportRefused(str(error)) from error


def _run(data: Any, recorded: bool) -> Run:
    if not isinstance(data, dict) or not isinstance(data.get("run"), dict):
        raise ImportRefused('this is no run; legal: a JSON object with "run" and "measurements"')
    head, rows = data["run"], data.get("measurements")
    if head.get("format") != FORMAT:
        raise ImportRefused(f"the run's format is {shown(head.get('format'))}; legal: {FORMAT}")
    if not isinstance(rows, list) or len(rows) > MAX_MEASUREMENTS:
        raise ImportRefused(f"measurements must be a list of at most {MAX_MEASUREMENTS:,}")
    for name in ("id", "created"):
        if not head.get(name):
            raise ImportRefused(f"the run needs {name} as text")
        check(head[name], "str", f"the run's {name}")
    if not is_moment(head["created"]):
        raise ImportRefused(f"the run's created is {shown(head['created'])}; legal: a moment as ISO 8601 writes it")
    unknown = sorted(set(head) - HEAD)
    if unknown:
        raise ImportRefused(f"the run has an unknown field {shown(unknown[0])}; legal: {', '.join(sorted(HEAD))}")
    for name, kind in (("seconds", "float"), ("phase", "str"), ("reason", "str")):
        check(head.get(name, 0 if kind == "float" else ""), kind, f"the run's {name}")
    if head.get("state") not in RUN_STATES:
        raise ImportRefused(f"the run's state is {shown(head.get('state'))}; legal: {', '.join(RUN_STATES)}")
    ended = head["state"] not in ("queued", "running")
    sweep = _sweep(head.get("sweep"))
    name, note = label(head.get("name", ""), head.get("note", ""))
    return Run(
        id=head["id"],
        sweep=sweep,
        state=head["state"] if ended else "cancelled",
        created=head["created"],
        seconds=head.get("seconds", 0.0),
        phase=head.get("phase", ""),
        reason=head.get("reason", "") if ended else "exported while it ran",
        device=None if head.get("device") is None else Device.from_json(head["device"], "the run's device"),
        measurements=_measurements(rows, sweep),
        recorded=recorded,
        name=name,
        note=note,
    )


def recorded_runs(folder: Path = DATA) -> tuple[dict[str, Run], list[str]]:
    """The runs recorded on other devices that ship here, by file name without ".json": those of most lengths first, and of
    these the newest; and a line for each file that is none."""
    runs, refusals = {}, []
    for path in sorted(folder.glob("*.json")):
        try:
            with path.open("rb") as file:
                runs[path.stem] = run_from_text(file.read(MAX_TEXT_BYTES + 1))  # a larger one is refused, not read
        except (ImportRefused, OSError) as error:
            refusals.append(f"{path.name}: {error}")
    newest_first = sorted(runs.items(), key=lambda named: named[1].created, reverse=True)
    return dict(sorted(newest_first, key=lambda named: -len(named[1].sweep.seqs))), refusals


def _sweep(data: Any) -> Sweep:
    try:
        return Sweep.from_json(data)
    except ValueError as error:
        raise ImportRefused(f"the run's sweep cannot be read: {error}") from error


def _measurements(rows: list[Any], sweep: Sweep) -> tuple[Measurement, ...]:
    found: dict[tuple[str, int], Measurement] = {}
    for number, row in enumerate(rows, start=1):
        where = f"measurement {number}"
        try:
            m = Measurement.from_json(row, where)
        except ValueError as error:
            said = str(error)
            raise ImportRefused(said if said.startswith(where) else f"{where}: {said}") from error
        if m.path not in sweep.paths or m.seq not in sweep.seqs or m.problem != sweep.at(m.seq):
            raise ImportRefused(f"{where} ({shown(m.path)} at {m.seq:,}) is of another problem than the run's sweep")
        if m.ok and not (m.device_ms if sweep.task == TIME else m.findings):
            needed = "device_ms above 0" if sweep.task == TIME else "findings"
            raise ImportRefused(f"{where} is ok but has no {needed}")
        if (m.path, m.seq) in found:
            raise ImportRefused(f"{where} repeats {m.path} at {m.seq:,}")
        found[m.path, m.seq] = m
    return tuple(found.values())
