"""The tiled algorithm's source, read as text, and what its variables hold line by line, for one query.

The source is attnlab/paths/tiled.py, which imports torch; nothing here does. The numbers are those of online_softmax.trace.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attnlab.online_softmax import BLOCK, RIGHT, Block, number, trace

FILE = Path(__file__).parent / "paths" / "tiled.py"


@dataclass(frozen=True)
class Step:
    """`line` counts from 0 in source("tiled"); `state` holds what is known once the line has run, in words."""

    line: int
    where: str
    state: dict[str, str]


@cache
def source(function: str) -> str:
    """The text of a function of tiled.py, remarks for the linter left out. Raises KeyError."""
    text = FILE.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            return "\n".join(line.removesuffix("  # noqa: E741") for line in lines)
    raise KeyError(function)


@cache
def line_of(start: str) -> int:
    """The one line of the tiled version that begins so, from 0. Raises ValueError where there is none or more than one."""
    (line,) = [place for place, text in enumerate(source("tiled").splitlines()) if text.strip().startswith(start)]
    return line


def steps(scores: Sequence[float], values: Sequence[float]) -> tuple[Step, ...]:
    """Every line that changes m, l or O, in the order it runs. The scale is in the scores already."""
    found = [Step(line_of("l, o ="), "Before the first block", {"m": "lowest", "l": "0", "o": "0"})]
    blocks = trace(scores, values, BLOCK, RIGHT)
    for place, block in enumerate(blocks, start=1):
        found += _lines(block, f"Block {place} of {len(blocks)}")
    last = blocks[-1]
    kept = {"m": number(last.m), "l": number(last.l), "o": number(last.o)}
    found.append(Step(line_of("out[..., i"), "All blocks done", kept | {"o / l": number(last.answer)}))
    return tuple(found)


def _lines(block: Block, where: str) -> list[Step]:
    first = block.first == 0
    state = {"m": "lowest" if first else number(block.m_old), "l": number(block.l_old), "o": number(block.o_old)}
    lines = []
    for start, name, value in (
        ("s = q_i", "s", ", ".join(map(number, block.scores))),
        ("m_new =", "m_new", number(block.m)),
        ("rescale =", "rescale", number(block.rescale)),
        ("p =", "p", ", ".join(map(number, block.p))),
        ("l = rescale", "l", number(block.l)),
        ("o = rescale", "o", number(block.o)),
        ("m = m_new", "m", number(block.m)),
    ):
        state = {**state, name: value}
        lines.append(Step(line_of(start), where, dict(state)))
    return lines
