"""Runs as tables for other programs: CSV and Parquet for pandas, Markdown for a README or an issue.

One row a point, in CSV and Parquet alike: where and when, the problem, then the fields of attnlab.measurement, whose names
carry their units. A point without a number has its status, and an empty cell (null) where the number would be. Raw samples
and findings are lists of their own and only in the JSON.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from attnlab import comparison, history, summary, table
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
    """Text that a spreadsheet would run as a formula begins with an apostrophe; a NUL, which few readers of CSV take, is left
    out."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(KINDS), lineterminator="\n")
    writer.writeheader()
    for run in runs:
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows(run))
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    text = value.replace("\0", "")
    return f"'{text}" if text.startswith(FORMULA) else text


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
    bound = [f"* {summary.TOO_SHORT}"] if any(m.launch_bound for m in run.measurements) else []
    notes = [plain(note) for note in [*bound, *table.footnotes(run)]]
    return "\n\n".join([*parts, _markdown_table(table.cells(run), "---:"), "  \n".join(notes)]).rstrip() + "\n"


def ratio_rows(runs: Sequence[Run], of: str = TIME) -> list[list[Any]]:
    """Every ratio of the later runs to the first, head first; None where an interval is not known. Memory has none."""
    timed = of == TIME
    unit, interval = ("ms", ["low", "high"]) if timed else ("bytes", [])
    found: list[list[Any]] = [["path", "seq", "against A", f"A_{unit}", unit, "ratio", *interval, "verdict"]]
    for letter, other in zip(comparison.LETTERS[1:], runs[1:], strict=False):
        for r in comparison.ratios(runs[0], other, of):
            between = r.interval or (None, None) if timed else ()
            amounts = (comparison.amount(m, of) for m in (r.reference, r.other))
            found.append([r.path, r.seq, letter, *amounts, r.value, *between, r.words])
    return found


def comparison_markdown(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Runs side by side for a README or an issue: the sentence, what differs, every ratio of time and of memory."""
    letters = comparison.LETTERS[: len(runs)]
    called = [f"{letter}: {plain(name)}" for letter, name in zip(letters, names, strict=True)]
    differ = [["what differs", *letters], *([d.what, *d.values] for d in comparison.differences(runs))]
    told = [f"- {plain(callout.text)}" for of in comparison.QUANTITIES for callout in comparison.callouts(runs, of)]
    parts = [plain(comparison.sentence(runs)), "  \n".join(called), _markdown_table(differ, ":---"), "\n".join(told)]
    for head, *body in (ratio_rows(runs, of) for of in comparison.QUANTITIES):
        figures = [[row[0], sequence(row[1]), *map(_figure, row[2:])] for row in body]
        parts += [_markdown_table([head, *figures], "---:")] * bool(body)
    return "\n\n".join(filter(None, parts)) + "\n"


def _figure(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else value or ""


def _markdown_table(cells: Sequence[Sequence[str]], align: str) -> str:
    head, *body = [[*map(plain, row)] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, [align] * len(head), *body])


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
