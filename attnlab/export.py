"""Runs as files: strict JSON both ways, CSV out, and the recorded runs that ship in attnlab/data/.

    {"run": {"format": 1, "id", "created", "state", "seconds", "phase", "reason", "sweep": {…}, "device": {…}},
     "measurements": [{"path", "status", "device_ms", "batch", "seq_q", …}, …]}

What is not known is null in JSON and an empty cell in CSV, never 0, NaN or Infinity. A file from outside is checked
field by field before anything is drawn from it; what is wrong with it is said in one line.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Collection
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import RUN_STATES, Run
from attnlab.sweep import TIME, Sweep

FORMAT = 1
MAX_TEXT_BYTES = 32 << 20
MAX_MEASUREMENTS = 10_000
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
        data = json.loads(text, parse_constant=_refuse_constant)
    except ImportRefused:
        raise
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ImportRefused(f"the file is not JSON ({error})") from error
    return run_from_json(data, recorded=recorded)


def run_from_json(data: Any, *, recorded: bool = True) -> Run:
    """Reads what run_to_json wrote, every field checked. Raises ImportRefused.

    A run that was still going when it was exported comes back as `cancelled`: nobody is measuring it any more.
    """
    if not isinstance(data, dict) or not isinstance(data.get("run"), dict):
        raise ImportRefused('this is no run; legal: a JSON object with "run" and "measurements"')
    head, rows = data["run"], data.get("measurements")
    if head.get("format") != FORMAT:
        raise ImportRefused(f"the run's format is {head.get('format')!r}; legal: {FORMAT}")
    if not isinstance(rows, list) or len(rows) > MAX_MEASUREMENTS:
        raise ImportRefused(f"measurements must be a list of at most {MAX_MEASUREMENTS:,}")
    for name in ("id", "created"):
        if not isinstance(head.get(name), str) or not head[name]:
            raise ImportRefused(f"the run needs {name} as text")
    for name, kind in (("seconds", "float"), ("phase", "str"), ("reason", "str")):
        _check(head.get(name, 0 if kind == "float" else ""), kind, f"the run's {name}")
    if head.get("state") not in RUN_STATES:
        raise ImportRefused(f"the run's state is {head.get('state')!r}; legal: {', '.join(RUN_STATES)}")
    ended = head["state"] not in ("queued", "running")
    sweep = _sweep(head.get("sweep"))
    return Run(
        id=head["id"],
        sweep=sweep,
        state=head["state"] if ended else "cancelled",
        created=head["created"],
        seconds=head.get("seconds", 0.0),
        phase=head.get("phase", ""),
        reason=head.get("reason", "") if ended else "exported while it ran",
        device=None if head.get("device") is None else _device(head["device"]),
        measurements=_measurements(rows, sweep),
        recorded=recorded,
    )


def to_csv(run: Run) -> str:
    """One row a measurement: where and when, then its fields; empty cells for what is not known; no raw samples and no
    findings, which are lists of their own."""
    where = {"run": run.id, "created": run.created, "device": run.device.name if run.device else ""}
    rows = [{**where, **m.to_json()} for m in run.measurements]
    out = io.StringIO()
    names = [f.name for f in fields(Measurement) if f.name not in ("problem", "samples_ms", "unused", "findings")]
    columns = [*where, *run.sweep.problem.to_json(), *names]
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        row |= {name: "; ".join(row[name]) for name in ("throttle", "notes")}
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
    return out.getvalue()


def recorded_runs(folder: Path = DATA) -> tuple[dict[str, Run], list[str]]:
    """The runs recorded on other devices that ship here, by file name without ".json", newest first; and a line for
    each file that is none."""
    runs, refusals = {}, []
    for path in sorted(folder.glob("*.json")):
        try:
            runs[path.stem] = run_from_text(path.read_bytes())
        except (ImportRefused, OSError) as error:
            refusals.append(f"{path.name}: {error}")
    return dict(sorted(runs.items(), key=lambda named: named[1].created, reverse=True)), refusals


def _sweep(data: Any) -> Sweep:
    try:
        return Sweep.from_json(data)
    except (TypeError, ValueError) as error:  # TypeError: a number where a list belongs
        raise ImportRefused(f"the run's sweep cannot be read: {error}") from error


def _device(data: Any) -> Device:
    if not isinstance(data, dict):
        raise ImportRefused("the run's device must be an object or null")
    _check_fields(Device, data, "the run's device")
    return Device.from_json(data)


def _measurements(rows: list[Any], sweep: Sweep) -> tuple[Measurement, ...]:
    found: dict[tuple[str, int], Measurement] = {}
    for number, row in enumerate(rows, start=1):
        where = f"measurement {number}"
        if not isinstance(row, dict):
            raise ImportRefused(f"{where} must be an object")
        _check_fields(Measurement, row, where, other={f.name for f in fields(AttentionProblem)})
        try:
            m = Measurement.from_json(row)
        except ValueError as error:
            raise ImportRefused(f"{where}: {error}") from error
        if m.path not in sweep.paths or m.seq not in sweep.seqs or m.problem != sweep.at(m.seq):
            raise ImportRefused(f"{where} ({m.path} at {m.seq:,}) is of another problem than the run's sweep")
        if m.ok and not (m.device_ms if sweep.task == TIME else m.findings):
            needed = "device_ms above 0" if sweep.task == TIME else "findings"
            raise ImportRefused(f"{where} is ok but has no {needed}")
        if (m.path, m.seq) in found:
            raise ImportRefused(f"{where} repeats {m.path} at {m.seq:,}")
        found[m.path, m.seq] = m
    return tuple(found.values())


def _check_fields(kind: type, data: dict[str, Any], where: str, other: Collection[str] = ()) -> None:
    """Raises ImportRefused unless data's fields are those of the dataclass, with values of the types it declares.

    `other` names fields that belong to something else, checked there.
    """
    declared = {f.name: f for f in fields(kind)}
    for name, value in data.items():
        if name in declared:
            _check(value, declared[name].type, f"{where}'s {name}")
        elif name not in other:
            raise ImportRefused(f"{where} has an unknown field {str(name)[:60]!r}")
    for name, field in declared.items():
        # A field without a default is needed; the problem lies flat beside the measurement's own fields.
        needed = field.default is MISSING and field.default_factory is MISSING and field.type != "AttentionProblem"
        if needed and name not in data:
            raise ImportRefused(f"{where} lacks {name}")


def _check(value: Any, declared: str, where: str) -> None:
    """Raises ImportRefused unless value is of the declared type; numbers must be finite and not negative."""
    base, optional = declared.removesuffix(" | None"), declared.endswith(" | None")
    if value is None and optional:
        return
    legal = {
        "str": type(value) is str,
        "bool": type(value) is bool,
        "int": type(value) is int and value >= 0,
        "float": type(value) in (int, float) and math.isfinite(value) and value >= 0,
        "tuple[str, ...]": type(value) is list and all(type(v) is str for v in value),
        "tuple[float, ...]": type(value) is list and all(type(v) in (int, float) and v >= 0 for v in value),
        "tuple[int, ...]": type(value) is list and all(type(v) is int and v >= 0 for v in value),
        "tuple[Finding, ...]": type(value) is list and all(type(v) is dict for v in value),
        "tuple[tuple[str, str], ...]": type(value) is list and all(_is_pair(v, str) for v in value),
        "tuple[tuple[str, float], ...]": type(value) is list and all(_is_pair(v, int, float) for v in value),
    }
    words = {
        "str": "text",
        "bool": "true or false",
        "int": "a whole number from 0",
        "float": "a finite number from 0",
        "tuple[str, ...]": "a list of texts",
        "tuple[int, ...]": "a list of whole numbers",
        "tuple[Finding, ...]": "a list of findings",
        "tuple[float, ...]": "a list of numbers",
        "tuple[tuple[str, str], ...]": "a list of pairs of texts",
        "tuple[tuple[str, float], ...]": "a list of pairs of a text and a number",
    }
    if not legal[base]:
        expected = words[base]
        raise ImportRefused(f"{where} is {str(value)[:60]!r}; legal: {expected}{' or null' if optional else ''}")


def _is_pair(value: Any, *second: type) -> bool:
    """A list of a text and one of these."""
    return type(value) is list and len(value) == 2 and type(value[0]) is str and type(value[1]) in second


def _refuse_constant(name: str) -> None:
    raise ImportRefused(f"the file holds {name}, which is not JSON; legal: numbers and null")
