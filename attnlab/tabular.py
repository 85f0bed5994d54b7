"""Runs as tables for other programs: CSV and Parquet for pandas, Markdown for a README or an issue.

One row a point, in CSV and Parquet alike: where and when, the problem, then the fields of attnlab.measurement, whose names
carry their units. A point without a number has its status, and an empty cell (null) where the number would be. Raw samples
and findings are lists of their own and only in the JSON.
"""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import Any

from attnlab import history, summary, table
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import TIME
from attnlab.units import sequence

WHERE = ("run", "created", "device", "driver", "cuda", "torch")
LEFT_OUT = ("problem", "samples_ms", "unused", "findings")
JOINED = ("lengths", "throttle", "notes")  # lists, as text with "; " between
KINDS = {  # column → what it holds
    **dict.fromkeys(WHERE, "str"),
    **{f.name: f.type for f in fields(AttentionProblem)},
    **{f.name: f.type for f in fields(Measurement) if f.name not in LEFT_OUT},
    **dict.fromkeys(JOINED, "str"),
}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula begins with, OWASP "CSV injection"
INT64 = 2**63
SPECIAL = "\\`*_[]<>|~#$&"  # what Markdown reads as markup


def rows(run: Run) -> list[dict[str, Any]]:
    """A row for each measurement: the columns of KINDS, None for what is not known or not set."""
    device = run.device
    of_run = (run.id, run.created, *((device.name, device.driver, device.cuda, device.torch) if device else ("",) * 4))
    where = dict(zip(WHERE, of_run, strict=True))
    found = []
    for m in run.measurements:
        row = dict.fromkeys(KINDS) | where | {k: v for k, v in m.to_json().items() if k in KINDS}
        found.append(row | {name: "; ".join(map(str, row[name] or ())) for name in JOINED})
    return found


def to_csv(*runs: Run) -> str:
    """Text that a spreadsheet would run as a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(KINDS), lineterminator="\n")
    writer.writeheader()
    for run in runs:
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows(run))
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def to_parquet(*runs: Run) -> bytes:
    """The same table with types: text, 64-bit integers (a float64 where one is larger), float64, booleans; null for what is
    not known."""
    import pyarrow as pa  # slow to import, and only here
    import pyarrow.parquet

    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    every = [row for run in runs for row in rows(run)]
    columns = {}
    for name, declared in KINDS.items():
        kind, values = declared.removesuffix(" | None"), [row[name] for row in every]
        if kind == "int" and any(value is not None and value >= INT64 for value in values):
            kind = "float"
        if kind == "float":
            values = [None if value is None else float(value) for value in values]
        columns[name] = pa.array(values, kinds[kind])
    out = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def to_markdown(run: Run, title: str = "") -> str:
    """A table for a README or an issue: the sentence, where it was measured, a row for each sequence length."""
    head = [f"**{plain(title)}**" if title else "", plain(summary.sentence(run)), plain(" · ".join(facts(run)))]
    parts = [part for part in head if part]
    if run.sweep.task != TIME:
        return "\n\n".join([*parts, "\n".join(f"    {plain_line(line)}" for line in table.rows(run))]) + "\n"
    names, *body = table.cells(run)
    lines = [[*map(plain, names)], ["---:"] * len(names), *([*map(plain, cells)] for cells in body)]
    notes = [plain(note) for note in table.footnotes(run)]
    drawn = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return "\n\n".join([*parts, drawn, "  \n".join(notes)]).rstrip() + "\n"


def facts(run: Run) -> list[str]:
    """Where, on what, of which shape and when it was measured."""
    entry = history.Entry(run=run)
    seqs = run.sweep.seqs
    lengths = f"sequence {sequence(seqs[0])}" + (f" to {sequence(seqs[-1])}" if len(seqs) > 1 else "")
    return [part for part in (entry.device, entry.versions, entry.shape, lengths, run.created, run.state) if part]


def plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return "".join(f"\\{sign}" if sign in SPECIAL else sign for sign in plain_line(text))


def plain_line(text: str) -> str:
    return " ".join(text.split())
