"""The few sliders of the stage: a sweep as they have it, or one line that says why there is none.

They stand for the shape of a step and start from it; what they do not hold (a mask, grouped heads, a direction) stays as
the step or preset has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from attnlab import talk
from attnlab.problem import DTYPE_BYTES, ProblemError
from attnlab.run import WorkerState
from attnlab.sweep import Sweep, lengths_up_to
from attnlab.ui import kept, link, shell

PREFIX = "g_"
BASE = "_stage_base"  # the sweep that the sliders were set to
KNOWN = "_stage_known"  # what all of them said last
STEP, YOURS = "stage_step", "stage_yours"  # the step that a tab is at; the sweep of the audience's step
NAMES = ("batch", "seq", "heads", "head_dim", "dtype")


@dataclass(frozen=True)
class Form:
    """`sweep` is None exactly when `refusal` says why, in one line."""

    sweep: Sweep | None
    refusal: str = ""


def open_stage(sweep: Sweep | None, replay: str = "") -> None:
    """Leads to the audience's step with the shape of another page, or with the recorded run that it replays; a link to the
    stage then holds either. Does not return."""
    st.session_state.pop(STEP, None)
    st.session_state.pop(YOURS, None)
    number = talk.chosen()[0].yours() or 1
    shape = {} if sweep is None or replay else in_address(sweep)
    if sweep is not None and not replay:
        st.session_state[YOURS] = sweep
    st.switch_page(
        shell.STAGE_SCRIPT, query_params={"step": str(number), **shape, **({"replay": replay} if replay else {})}
    )


def in_address(sweep: Sweep) -> dict[str, str]:
    values = link.shape_values(sweep)
    return {PREFIX + name: str(values[name]) for name in NAMES}


def fields() -> dict[str, kept.Field]:
    """What an address may say of a shape of one's own. All or nothing is there: the defaults mean nothing."""

    def stop(stops: tuple[int, ...]) -> kept.Field:
        def read(text: str) -> int:
            if text not in map(str, stops):
                raise ValueError(text)
            return int(text)

        return kept.Field(None, read, link.legal_numbers(stops))

    return {
        "batch": kept.whole(None, 1, link.BATCH_MAX),
        "seq": stop(link.SEQS),
        "heads": kept.whole(None, 1, link.HEADS_MAX),
        "head_dim": stop(link.HEAD_DIMS),
        "dtype": kept.one_of(None, tuple(DTYPE_BYTES)),
    }


def from_address(worker: WorkerState, base: Sweep) -> tuple[Sweep, str]:
    """(`base` with what the address says of its shape, a line for what in it cannot be)."""
    values, faults = kept.read(PREFIX, fields(), dict(st.query_params))
    said = {name: value for name, value in values.items() if value is not None}
    try:
        return asked(base, {**link.shape_values(base), **said}), "; ".join(faults)
    except ProblemError as error:
        return base, "; ".join([*faults, str(error)])


def form(base: Sweep, *, disabled: bool) -> Form:
    """Draws the sliders in a row, set to `base` whenever that is another one."""
    state, values = st.session_state, link.shape_values(base)
    if state.get(BASE) != base or any(PREFIX + name not in state for name in NAMES):
        state[BASE], state[KNOWN] = base, {PREFIX + name: values[name] for name in NAMES}
        state.update(state[KNOWN])
    elif state[PREFIX + "dtype"] is None:  # a browser that has lost what it was told; then it knows none of them
        state.update(state[KNOWN])
    columns = st.columns([3, 3, 3, 3, 4], gap="medium", vertical_alignment="bottom")

    def tie(name: str) -> dict[str, Any]:
        return {"key": PREFIX + name, "disabled": disabled}

    batches, heads = max(link.BATCH_MAX, values["batch"]), max(link.HEADS_MAX, values["heads"])
    given = {
        "batch": columns[0].slider("Batch", 1, batches, **tie("batch")),
        "seq": columns[1].select_slider("Longest sequence", sorted({*link.SEQS, values["seq"]}), **tie("seq")),
        "heads": columns[2].slider("Heads", 1, heads, **tie("heads")),
        "head_dim": columns[3].select_slider(
            "Head dim", sorted({*link.HEAD_DIMS, values["head_dim"]}), **tie("head_dim")
        ),
        "dtype": columns[4].segmented_control(
            "Dtype", list(DTYPE_BYTES), required=True, width="stretch", **tie("dtype")
        ),
    }
    state[KNOWN] = {PREFIX + name: value for name, value in given.items()}
    try:
        return Form(asked(base, given))
    except ProblemError as error:
        return Form(None, str(error))


def asked(base: Sweep, given: dict[str, Any]) -> Sweep:
    """`base` in another shape. Raises ProblemError."""
    if given == {name: link.shape_values(base)[name] for name in NAMES}:
        return base
    old = base.problem
    kv_heads = given["heads"] if old.kv_heads == old.heads else old.kv_heads
    longest = given["seq"]
    problem = replace(
        old, batch=given["batch"], seq_q=longest, seq_kv=longest, heads=given["heads"], kv_heads=kv_heads,
        head_dim=given["head_dim"], dtype=given["dtype"], lengths=old.lengths_at(longest),
    )  # fmt: skip
    return replace(base, problem=problem, seqs=lengths_up_to(longest))
