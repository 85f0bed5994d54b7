"""The form: sliders and switches → one Sweep, or one line that says why there is none.

The form's state lives in the page's address, so a link reproduces the page. Streamlit's `bind="query-params"` keeps a
value out of the address while it equals the widget's declared default. A declared default must therefore not depend on
the device, or one link would mean two shapes on two machines: the sliders declare their smallest value, dtype and
direction declare none (so an address that this page wrote always holds them), and the defaults that fit the device are
seeded into the session.
Nothing is trusted because the browser checked it: the address is validated here, and the values again by the Sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import streamlit as st

from attnlab.device import PathStatus
from attnlab.paths import PATHS
from attnlab.problem import ALIGNMENT, DIRECTIONS, DTYPE_BYTES, AttentionProblem, ProblemError
from attnlab.run import WorkerState
from attnlab.sweep import DEFAULT_BUDGET_S, SHORTEST, Sweep, default_sweep, powers_of_two
from attnlab.ui.text import escape

BATCH_MAX = 64
SEQS = powers_of_two(131_072)
HEADS_MAX = 128
HEAD_DIMS = (32, 64, 96, 128, 192, 256)
BUDGET_MAX_S = 3_600
PATHS_AT_FIRST = ("standard", "flash")

SEEDED = "_form_seeded"  # what the form was filled with before the device was known
LINK_FAULTS = "_link_faults"  # [(key, what the link said, what is legal)]
LINK_SWEEP = "_link_sweep"  # what was shown beside them; they are old news once the form says something else


@dataclass(frozen=True)
class Form:
    """What the form asks for. `sweep` is None exactly when `refusal` says why, in one line."""

    sweep: Sweep | None
    refusal: str
    link_note: str  # what in the link was not understood; empty when all was


def seed(worker: WorkerState, recordings: Collection[str]) -> None:
    """Fills the form before its widgets exist: the link first, then what fits the device. Once a run of the page.

    `recordings` are the names that `replay` may have in a link.
    """
    device = worker.device
    defaults = shape_values(default_sweep(device.kind if device else "cpu"))
    if SEEDED not in st.session_state:
        link = {key: st.query_params.get_all(key) for key in st.query_params}
        faults = link_faults(link, recordings)
        wrong = {key for key, _, _ in faults}
        by_this_page = "dtype" in link  # then a missing value is its widget's declared default
        undeclared = ("dtype", "direction")
        seeds = {
            key: value
            for key, value in defaults.items()
            if key in wrong or (key not in link and (key in undeclared or not by_this_page))
        }
        st.session_state.update(seeds)
        if device is not None:
            st.query_params.update({key: str(value) for key, value in seeds.items()})
        st.session_state[LINK_FAULTS] = faults
        st.session_state[SEEDED] = {} if device is not None else seeds
    elif device is not None and (seeded := st.session_state[SEEDED]):
        # Seeded before the device was known, and now it is. What the visitor has touched meanwhile is left alone.
        st.session_state[SEEDED] = {}
        if all(st.session_state.get(key) == value for key, value in seeded.items()):
            st.session_state.update({key: defaults[key] for key in seeded})
            st.session_state.pop(LINK_SWEEP, None)  # this change is not the visitor's


def shape_values(sweep: Sweep) -> dict[str, int | str]:
    """The form's values for a sweep, by widget key."""
    problem = sweep.problem
    return {
        "batch": problem.batch,
        "seq": sweep.seqs[-1],
        "heads": problem.heads,
        "head_dim": problem.head_dim,
        "dtype": problem.dtype,
        "direction": problem.direction,
    }


def link_faults(link: Mapping[str, list[str]], recordings: Collection[str]) -> list[tuple[str, str, str]]:
    """What in a link cannot be: (key, the text, the legal values), one for each parameter that is not understood."""
    whole = {
        "batch": range(1, BATCH_MAX + 1),
        "seq": SEQS,
        "heads": range(1, HEADS_MAX + 1),
        "head_dim": HEAD_DIMS,
        "kv_heads": range(-(2**31), 2**31),
        "budget": range(1, BUDGET_MAX_S + 1),
    }
    words = {"dtype": tuple(DTYPE_BYTES), "direction": DIRECTIONS}
    switches = ("causal", "live", "try_oom", *PATHS)
    faults = []
    for key, texts in link.items():
        text = ", ".join(texts)
        if key in whole and not (text.isascii() and text.lstrip("-").isdigit() and int(text) in whole[key]):
            faults.append((key, text, legal_numbers(whole[key])))
        elif key in words and text not in words[key]:
            faults.append((key, text, ", ".join(words[key])))
        elif key in switches and text.lower() not in ("true", "false"):
            faults.append((key, text, "true, false"))
        elif key == "replay" and text not in recordings:
            faults.append((key, text, "; ".join(recordings) or "nothing, for no run is recorded here"))
    return faults


def legal_numbers(numbers: range | tuple[int, ...]) -> str:
    if isinstance(numbers, range):
        return f"whole numbers from {numbers.start:,} to {numbers.stop - 1:,}"
    return ", ".join(map(str, numbers))


def form(worker: WorkerState, *, disabled: bool) -> Form:
    """Draws the form into the current container. `disabled` while a recorded run is shown."""
    batch = st.slider("Batch", 1, BATCH_MAX, key="batch", bind="query-params", disabled=disabled)
    seq = st.select_slider(
        "Longest sequence",
        SEQS,
        key="seq",
        bind="query-params",
        disabled=disabled,
        help=f"The sweep measures {SHORTEST}, {2 * SHORTEST}, … up to this length.",
    )
    heads = st.slider("Heads", 1, HEADS_MAX, key="heads", bind="query-params", disabled=disabled)
    head_dim = st.select_slider("Head dim", HEAD_DIMS, key="head_dim", bind="query-params", disabled=disabled)
    dtype = st.segmented_control(
        "Dtype", list(DTYPE_BYTES), key="dtype", bind="query-params", required=True, disabled=disabled, width="stretch"
    )
    direction = st.segmented_control(
        "Direction",
        list(DIRECTIONS),
        key="direction",
        bind="query-params",
        required=True,
        disabled=disabled,
        width="stretch",
    )
    causal = st.toggle("Causal mask", key="causal", bind="query-params", disabled=disabled)
    st.caption(ALIGNMENT)
    paths = path_picker(worker, disabled=disabled)
    says = st.container()
    with st.popover("More", width="stretch"):
        kv_heads = st.number_input(
            "KV heads",
            value=None,
            step=1,
            key="kv_heads",
            bind="query-params",
            placeholder="as many as heads",
            disabled=disabled,
            help="Fewer than heads is grouped-query attention; it must divide heads.",
        )
        budget_s = st.number_input(
            "Budget of a run, seconds",
            1,
            BUDGET_MAX_S,
            int(DEFAULT_BUDGET_S),
            key="budget",
            bind="query-params",
            disabled=disabled,
            help="A point predicted not to fit is skipped and shown with its prediction.",
        )
        try_oom = st.toggle(
            "Try out of memory for real",
            key="try_oom",
            bind="query-params",
            disabled=disabled,
            help="On a GPU: a point predicted not to fit is tried all the same. Host memory is never tried.",
        )
    sweep, refusal = None, ""
    try:
        sweep = to_sweep(batch, seq, heads, head_dim, kv_heads, dtype, direction, causal, paths, budget_s, try_oom)
    except ProblemError as error:
        refusal = str(error)
    if sweep != st.session_state.setdefault(LINK_SWEEP, sweep):
        st.session_state[LINK_FAULTS] = []
    note = "; ".join(
        f"{key} is {text!r} in the link, legal: {legal}; shown instead: {st.session_state[key]}"
        for key, text, legal in st.session_state[LINK_FAULTS]
    )
    if refusal:
        says.error(escape(refusal))
    if note:
        says.warning(escape(note))
    return Form(sweep, refusal, note)


def to_sweep(
    batch: int,
    seq: int,
    heads: int,
    head_dim: int,
    kv_heads: int | None,
    dtype: str | None,
    direction: str | None,
    causal: bool,
    paths: tuple[str, ...],
    budget_s: float,
    try_oom: bool,
) -> Sweep:
    """The form's values as a sweep. `kv_heads` None means as many as heads. Raises ProblemError."""
    problem = AttentionProblem(
        batch=batch,
        seq_q=seq,
        heads=heads,
        head_dim=head_dim,
        kv_heads=kv_heads,
        dtype=dtype,
        causal=causal,
        direction=direction,
    )
    return Sweep(problem=problem, seqs=powers_of_two(seq), paths=paths, budget_s=budget_s, try_oom=try_oom)


def path_picker(worker: WorkerState, *, disabled: bool) -> tuple[str, ...]:
    """One box for each path, always all of them; a path that cannot run here is greyed out and says why."""
    status = {path.name: path for path in worker.paths}
    with st.container(gap=None):
        st.markdown("Paths")
        return tuple(name for name in PATHS if path_box(name, status.get(name), disabled=disabled))


def path_box(name: str, here: PathStatus | None, *, disabled: bool) -> bool:
    """One path's box. `here` is what the worker says of it, None while that is not known."""
    missing = here is not None and not here.usable
    what = PATHS[name].what
    return st.checkbox(
        f"{name} :small[:gray[{here.state}]]" if missing else name,
        name in PATHS_AT_FIRST,
        key=name,
        bind="query-params",
        disabled=disabled or missing,
        help=f"{what}. {here.reason}" if here and here.reason else what,
    )
