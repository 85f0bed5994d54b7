"""A small form for one attention problem, for pages that calculate: number boxes, each with the page's prefix.

fields = {**shape_form.FIELDS, "gpu": …}        # for ui.kept
values = shape_form.widgets("m_")               # after kept.fill
problem = shape_form.problem(values)            # raises ProblemError
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from attnlab.problem import DIRECTIONS, DTYPE_BYTES, FORWARD, LIMITS, AttentionProblem
from attnlab.sweep import default_sweep
from attnlab.ui import kept

# One default on every machine, so that one link means one shape.
USUAL = default_sweep("cuda").problem
BOUNDS = {"batch": 4096, "seq": LIMITS["seq_q"], "heads": 1024, "head_dim": LIMITS["head_dim"], "kv_heads": 1024}
FIELDS = {
    "batch": kept.whole(USUAL.batch, 1, BOUNDS["batch"]),
    "seq": kept.whole(USUAL.seq_q, 1, BOUNDS["seq"]),
    "heads": kept.whole(USUAL.heads, 1, BOUNDS["heads"]),
    "kv_heads": kept.whole(None, 1, BOUNDS["kv_heads"]),
    "head_dim": kept.whole(USUAL.head_dim, 1, BOUNDS["head_dim"]),
    "dtype": kept.one_of(USUAL.dtype, tuple(DTYPE_BYTES)),
    "direction": kept.one_of(FORWARD, DIRECTIONS),
    "causal": kept.switch(False),
}


def widgets(prefix: str, *, disabled: bool = False) -> dict[str, Any]:
    """Draws them and returns what they hold, by name."""

    def box(label: str, name: str, slot: Any, **more: Any) -> int | None:
        return slot.number_input(label, 1, BOUNDS[name], step=1, key=prefix + name, disabled=disabled, **more)

    left, right = st.columns(2, gap="small")
    values = {
        "batch": box("Batch", "batch", left),
        "seq": box("Sequence", "seq", right),
        "heads": box("Heads", "heads", left),
        "kv_heads": box("KV heads", "kv_heads", right, placeholder="as heads"),
        "head_dim": box("Head dim", "head_dim", left),
    }
    with right:
        st.space("medium")
        values["causal"] = st.toggle("Causal", key=prefix + "causal", disabled=disabled)
    values["dtype"] = left.selectbox("Dtype", tuple(DTYPE_BYTES), key=prefix + "dtype", disabled=disabled)
    values["direction"] = right.selectbox("Direction", DIRECTIONS, key=prefix + "direction", disabled=disabled)
    return values


def problem(values: Mapping[str, Any]) -> AttentionProblem:
    """Raises ProblemError."""
    return AttentionProblem(
        batch=values["batch"],
        seq_q=values["seq"],
        heads=values["heads"],
        kv_heads=values["kv_heads"],
        head_dim=values["head_dim"],
        dtype=values["dtype"],
        causal=values["causal"],
        direction=values["direction"],
    )


def values_of(problem: AttentionProblem) -> dict[str, Any]:
    """What the form holds for a problem; no box goes above its bound."""
    values = {name: getattr(problem, name) for name in ("batch", "heads", "head_dim", "dtype", "direction", "causal")}
    values |= {"seq": problem.seq_kv, "kv_heads": None if problem.kv_heads == problem.heads else problem.kv_heads}
    return {name: min(value, BOUNDS[name]) if name in BOUNDS and value else value for name, value in values.items()}
