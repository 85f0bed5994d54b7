"""The shape that "Why it is fast" is told with → a problem and its tiles, or one line that says why there are none."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attnlab import checked
from attnlab.problem import DTYPE_BYTES, AttentionProblem, ProblemError
from attnlab.run import WorkerState
from attnlab.tiling import BLOCKS, Tiling
from attnlab.ui import kept, link

PREFIX = "w_"  # of a widget's key, and of its name in the address
RECORDED = "w_recorded_"
SEEDED = "_explain_seeded"  # what was filled in before the device was known
SECTIONS = ("The trip", "Tiles", "Online softmax", "The code", "Layout")
MEASURED = ("The trip", "Layout")  # those that hold measured numbers
SHAPES = {
    "cuda": {"batch": 4, "seq": 4_096, "heads": 32, "head_dim": 128, "dtype": "bfloat16"},
    "cpu": {"batch": 1, "seq": 1_024, "heads": 8, "head_dim": 64, "dtype": "float32"},
}


@dataclass(frozen=True)
class Form:
    """`problem` and `tiling` are None when `refusal` says why, in one line; `note` is what a link says wrongly."""

    problem: AttentionProblem | None
    tiling: Tiling | None
    refusal: str = ""
    note: str = ""


def _number_of(default: int, options: tuple[int, ...]) -> kept.Field:
    def read(text: str) -> int:
        if text not in map(str, options):
            raise ValueError(text)
        return int(text)

    return kept.Field(default, read, link.legal_numbers(options))


def fields(kind: str) -> dict[str, kept.Field]:
    shape = SHAPES[kind]
    return {
        "batch": kept.whole(shape["batch"], 1, link.BATCH_MAX),
        "seq": _number_of(shape["seq"], link.SEQS),
        "heads": kept.whole(shape["heads"], 1, link.HEADS_MAX),
        "head_dim": _number_of(shape["head_dim"], link.HEAD_DIMS),
        "dtype": kept.one_of(shape["dtype"], tuple(DTYPE_BYTES)),
        "causal": kept.switch(False),
        "block_q": _number_of(128, BLOCKS),
        "block_k": _number_of(128, BLOCKS),
        "section": kept.one_of(SECTIONS[0], SECTIONS),
    }


def section() -> str:
    """Which part is shown; a link holds it. Drawn on the page, before the form, by `fill` made ready."""
    return st.segmented_control(
        "Section",
        SECTIONS,
        required=True,
        key=f"{PREFIX}section",
        label_visibility="collapsed",
    )


def fill(worker: WorkerState) -> None:
    """Gives the widgets their values, before they exist: the link, what was set before, what fits the device. Seeded before
    the device is known, they follow it as long as the visitor has touched none of the shape."""
    kind = worker.device.kind if worker.device else "cuda"
    state = st.session_state
    if SEEDED not in state:
        state[SEEDED] = None
        if worker.device is None:
            absent = [name for name in SHAPES["cuda"] if PREFIX + name not in st.query_params]
            state[SEEDED] = {name: SHAPES["cuda"][name] for name in absent}
    elif worker.device is not None and state[SEEDED] is not None:
        seeded, state[SEEDED] = state[SEEDED], None
        if all(state.get(PREFIX + name) == value for name, value in seeded.items()):
            state.update({PREFIX + name: SHAPES[kind][name] for name in seeded})
    kept.fill(PREFIX, fields(kind))


def unknown_show(recorded: tuple[str, ...]) -> str:
    """What a link says of a recorded run that is not there; empty when it says nothing wrong."""
    asked = st.query_params.get("w_show")
    legal = ", ".join(recorded) or "nothing, for no call is recorded here that was taken apart"
    return "" if asked in (None, *recorded) else f"w_show is {checked.shown(asked)} in the link, legal: {legal}"


def form(worker: WorkerState, recorded: AttentionProblem | None) -> Form:
    """Draws the form into the current container. Where a recorded run is shown, greyed out and with its shape, in widgets of
    their own; the blocks stay the visitor's."""
    prefix = RECORDED if recorded else PREFIX
    if recorded:
        shape = {name: getattr(recorded, name) for name in ("batch", "heads", "head_dim", "dtype", "causal")}
        shape["seq"] = recorded.seq_q
        st.session_state.update({prefix + name: value for name, value in shape.items()})
    values = _shape_widgets(prefix, recorded)
    blocks = {
        name: column.select_slider(
            label, BLOCKS, key=PREFIX + name, help="Of a tile: assumed, as kernels commonly choose."
        )
        for column, name, label in zip(st.columns(2), ("block_q", "block_k"), ("Query block", "Key block"), strict=True)
    }
    here = fields(worker.device.kind if worker.device else "cuda")
    # The visitor's own shape stays kept beside a recorded one, and the section and the blocks are theirs in either case.
    note = kept.keep(PREFIX, here, {name: st.session_state[PREFIX + name] for name in here})
    try:
        problem = recorded or AttentionProblem(
            batch=values["batch"], seq_q=values["seq"], heads=values["heads"], head_dim=values["head_dim"],
            dtype=values["dtype"], causal=values["causal"],
        )  # fmt: skip
        return Form(problem, Tiling(problem, **blocks), note=note)
    except ProblemError as error:
        return Form(None, None, refusal=str(error), note=note)


def _shape_widgets(prefix: str, recorded: AttentionProblem | None) -> dict[str, int | str | bool]:
    """Draws them; a range reaches as far as what is recorded."""
    more = {"batch": recorded.batch, "heads": recorded.heads} if recorded else {"batch": 1, "heads": 1}
    seqs, dims = ({recorded.seq_q}, {recorded.head_dim}) if recorded else (set(), set())
    tie = {name: {"key": prefix + name, "disabled": bool(recorded)} for name in ("causal", *SHAPES["cuda"])}
    return {
        "batch": st.slider("Batch", 1, max(link.BATCH_MAX, more["batch"]), **tie["batch"]),
        "seq": st.select_slider("Sequence", sorted({*link.SEQS, *seqs}), **tie["seq"]),
        "heads": st.slider("Heads", 1, max(link.HEADS_MAX, more["heads"]), **tie["heads"]),
        "head_dim": st.select_slider("Head dim", sorted({*link.HEAD_DIMS, *dims}), **tie["head_dim"]),
        "dtype": st.segmented_control("Dtype", list(DTYPE_BYTES), required=True, width="stretch", **tie["dtype"]),
        "causal": st.toggle("Causal mask", **tie["causal"]),
    }
