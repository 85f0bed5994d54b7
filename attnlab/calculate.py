"""What the command line says without measuring anything: lines of text for `roofline` and `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnlab import estimate, hardware, memory_plan, textbook, units
from attnlab.device import Device
from attnlab.problem import AttentionProblem, ProblemError


def textbook_table(seqs: Sequence[int], d_model: int, gpu: str | None) -> list[str]:
    """The textbook's own table and nothing else; on its A100 unless a card is named. Raises ProblemError."""
    roof = roof_of(gpu, "float16") if gpu else textbook.ROOF
    return aligned([textbook.COLUMNS, *(textbook.row(seq, *textbook.textbook(seq, d_model, roof)) for seq in seqs)])


def floor_table(problems: Sequence[AttentionProblem], roof: estimate.Roof) -> list[str]:
    """The same table counted right, for standard and flash, with the roof above it and what was counted below."""
    rows = [
        textbook.row(p.seq_q, *(estimate.estimate(p, path, roof) for path in ("standard", "flash"))) for p in problems
    ]
    shape = problems[-1]
    return [
        roof.words,
        f"source: {roof.provenance}",
        "",
        *aligned([textbook.COLUMNS, *rows]),
        "",
        f"batch {shape.batch}, heads {shape.heads}, dim {shape.head_dim}, {shape.dtype}: a score matrix for each head;"
        " standard moves every step over the scores, flash each tensor once",
    ]


def roof_known(device: Device, dtype: str) -> bool:
    return any(roof.source == estimate.DATA_SHEET for roof in estimate.roofs(device, dtype))


def roof_of(where: Device | str, dtype: str) -> estimate.Roof:
    """The roof of a device, or of a card by its name. Raises ProblemError where none is known: none is made up."""
    if isinstance(where, str):
        roof, name = estimate.data_sheet_roof(where, dtype), where
    else:
        roof, name = next(iter(estimate.roofs(where, dtype)), None), where.name
    if roof is None:
        raise ProblemError(
            f"no {dtype} roof is known of {name}; legal: another dtype, or --gpu with one of {', '.join(hardware.names())}"
        )
    return roof


PLANNED = ("standard", "flash", "sdpa-math")


@dataclass(frozen=True, kw_only=True)
class Room:
    """What there is to fit into."""

    device: str
    kind: str
    capacity_bytes: int
    source: str


def room_of(where: Device | str) -> Room:
    """Of a device what its driver says, of a card of the table its data sheet."""
    if isinstance(where, str):
        return Room(
            device=where,
            kind="cuda",
            capacity_bytes=hardware.memory_bytes(where),
            source=hardware.lookup(where).source,
        )
    source = "as its driver says" if where.kind == "cuda" else where.memory_name
    return Room(device=where.name, kind=where.kind, capacity_bytes=where.total_bytes, source=source)


def plan(problem: AttentionProblem, room: Room) -> dict[str, Any]:
    """What each path needs and how far it goes, as what `--json` writes: bytes are ints, null where no sequence fits."""
    paths = {}
    for path in PLANNED:
        parts = memory_plan.parts(problem, path, room.kind)
        total = sum(part.size_bytes for part in parts)
        paths[path] = {
            "parts": [{"name": part.name, "bytes": part.size_bytes} for part in parts],
            "total_bytes": total,
            "fits": total <= room.capacity_bytes,
            "longest_seq": memory_plan.longest_seq(problem, path, room.capacity_bytes, room.kind),
        }
    device = {"name": room.device, "capacity_bytes": room.capacity_bytes, "source": room.source}
    return {"device": device, "problem": problem.to_json(), "paths": paths}


def plan_lines(problem: AttentionProblem, room: Room) -> list[str]:
    """The same as a table: a line for each part, a column for each path."""
    said = plan(problem, room)["paths"]
    sizes = {path: {part["name"]: part["bytes"] for part in found["parts"]} for path, found in said.items()}
    names = dict.fromkeys(name for column in sizes.values() for name in column)
    cells = [
        (name, *(units.size(column[name]) if name in column else "" for column in sizes.values())) for name in names
    ]
    rows = [
        (f"at sequence {units.sequence(problem.seq_kv)}", *said),
        *cells,
        ("all together", *(units.size(found["total_bytes"]) for found in said.values())),
        ("fits", *("yes" if found["fits"] else "no" for found in said.values())),
        ("longest sequence", *(memory_plan.longest_words(found["longest_seq"]) for found in said.values())),
    ]
    width = max(len(row[0]) for row in rows)
    return [
        f"{room.device}: {units.size(room.capacity_bytes)}, {room.source}",
        units.shape(problem),
        "",
        *aligned([(row[0].ljust(width), *row[1:]) for row in rows]),
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, right-aligned in columns three spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
