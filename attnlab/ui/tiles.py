"""The walk through the tiles, played in the browser: a st.components.v2 component (tiles.js) that needs no rerun.

Python sends the arithmetic of attnlab.tiling once for a problem: for each row how many tiles it visits, and for each block
edge the bytes before it. The browser adds two of them up for a step, as Tiling.once_bytes and Tiling.asked_bytes do.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import streamlit as st

from attnlab import cost, trip
from attnlab.chart_style import TOKENS
from attnlab.device import Device
from attnlab.tiling import EXAMPLE, KIB, REGISTERS_KB, Tiling, sentence, shared_bytes
from attnlab.ui import headline

HEIGHT = "max(425px, calc(100vh - 340px))"  # the first screen of a projector

_JS = "\n".join(
    [
        f"const TOKENS = {json.dumps(TOKENS, separators=(',', ':'))};",
        Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
    ]
)


def section(tiling: Tiling, device: Device | None) -> None:
    """The walk, in words and played; where the device has no shared memory that is known, against an H200's."""
    own = shared_bytes(device)
    chip = f"shared memory on {device.name}" if own else "shared memory, on an H200"
    headline.spoken(sentence(tiling), lines=1)
    alt = "The score matrix as tiles: one is on chip, those before are used up, none is written to memory"
    player(walk(tiling, own or shared_bytes(EXAMPLE), chip), key="w_tiles", height=HEIGHT, alt=alt)
    st.caption(
        f"Blocks of {tiling.block_q} × {tiling.block_k} are an assumption: move them on the left. Each multiprocessor walks a "
        "row of its own. Inputs count in their dtype, S and O in float32; kernels hold S and O in registers, "
        f"{REGISTERS_KB} KB more of each multiprocessor. Sizes: CUDA C++ Programming Guide, technical specifications."
    )


def walk(tiling: Tiling, on_chip: int, chip: str) -> dict[str, Any]:
    """What the browser is told; sizes in bytes. `on_chip` is the shared memory of one multiprocessor of `chip`."""
    problem = tiling.problem
    return {
        "seqQ": problem.seq_q,
        "seqK": problem.seq_kv,
        "blockQ": tiling.block_q,
        "blockK": tiling.block_k,
        "widths": tiling.widths,
        "columns": tiling.columns,
        "queryBytes": [tiling.query_bytes_before(row) for row in range(tiling.rows + 1)],
        "keyBytes": [tiling.key_bytes_before(column) for column in range(tiling.columns + 1)],
        "sram": list(tiling.sram_bytes().items()),
        "onChip": on_chip,
        "chip": escape(chip),  # a name from outside, and the browser makes HTML of it
        "kib": KIB,
        "scores": cost.score_bytes(problem),
        "tile": tiling.tile_bytes,
        "standard": trip.standard_bytes(problem),
        "heads": problem.batch * problem.heads,
    }


def player(told: dict[str, Any], *, key: str, height: str, alt: str) -> None:
    """Draws it, as wide as its container; `height` is a CSS length. A new problem starts at the first tile."""
    draw = st.components.v2.component("attnlab_tiles", js=_JS, isolate_styles=False)
    draw(key=key, data=[told, height, alt])
