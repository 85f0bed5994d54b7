"""The form: sliders and switches → one Sweep, or one line that says why there is none.

While a recorded run is shown, its own shape stands in the form, greyed out, in widgets of their own: what the visitor
had set waits in the session, and comes back with the live page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from attnlab.device import PathStatus
from attnlab.paths import PATHS
from attnlab.problem import ALIGNMENT, DIRECTIONS, DTYPE_BYTES, AttentionProblem, ProblemError
from attnlab.run import WorkerState
from attnlab.sweep import BUDGET_MAX_S, DEFAULT_BUDGET_S, DEFAULT_PATHS, L2_MODES, SHORTEST, Sweep, powers_of_two
from attnlab.ui import link
from attnlab.ui.text import escape

Tie = Callable[
    ..., dict[str, Any]
]  # a widget's name and default → what ties the widget to the address or to a recorded run


@dataclass(frozen=True)
class Form:
    """What the form asks for. `sweep` is None exactly when `refusal` says why, in one line."""

    sweep: Sweep | None
    refusal: str = ""
    link_note: str = ""  # what in the link was not understood; empty when all was


def form(worker: WorkerState) -> Form:
    """Draws the form into the current container; link.seed has filled it."""
    shape = shape_widgets(in_link)
    paths = path_widgets(in_link, {path.name: path for path in worker.paths})
    says = st.container()
    more, how = more_widgets(in_link)
    sweep, refusal = None, ""
    try:
        problem = AttentionProblem(**shape, **more)
        sweep = Sweep(problem=problem, seqs=powers_of_two(problem.seq_q), paths=paths, **how)
    except ProblemError as error:
        refusal = str(error)
    note = link.note(sweep)
    if refusal:
        says.error(escape(refusal))
    if note:
        says.warning(escape(note))
    return Form(sweep, refusal, note)


def recorded_form(sweep: Sweep) -> Form:
    """Draws what a recorded run was asked for, greyed out, into the current container."""
    problem = sweep.problem
    values = {
        **link.shape_values(sweep),
        "causal": problem.causal,
        "kv_heads": None if problem.kv_heads == problem.heads else problem.kv_heads,
        "window": problem.window,
        "queries": link.QUERIES[0] if sweep.seq_q is None else str(sweep.seq_q),
        "within": f"{100 * sweep.precision:g}",
        "l2": sweep.l2,
        "budget": max(1, round(sweep.budget_s)),
        "try_oom": sweep.try_oom,
        **{path: path in sweep.paths for path in PATHS},
    }
    st.session_state.update({as_recorded(name)["key"]: value for name, value in values.items()})
    shape_widgets(
        as_recorded,
        batch_max=max(link.BATCH_MAX, problem.batch),
        seqs=sorted({*link.SEQS, *sweep.seqs}),
        heads_max=max(link.HEADS_MAX, problem.heads),
        head_dims=sorted({*link.HEAD_DIMS, problem.head_dim}),
    )
    path_widgets(as_recorded, {})
    st.container()
    more_widgets(
        as_recorded,
        queries=tuple(dict.fromkeys([*link.QUERIES, values["queries"]])),
        within=tuple(dict.fromkeys([*link.WITHIN, values["within"]])),
    )
    return Form(sweep)


def in_link(name: str, **default: Any) -> dict[str, Any]:
    return {"key": name, "bind": "query-params", **default}


def as_recorded(name: str, **default: Any) -> dict[str, Any]:
    return {"key": f"recorded_{name}", "disabled": True}  # the session holds its value


def shape_widgets(
    tie: Tie,
    batch_max: int = link.BATCH_MAX,
    seqs: Sequence[int] = link.SEQS,
    heads_max: int = link.HEADS_MAX,
    head_dims: Sequence[int] = link.HEAD_DIMS,
) -> dict[str, Any]:
    """The fields of an AttentionProblem, all but kv_heads."""
    shape = {
        "batch": st.slider("Batch", 1, batch_max, **tie("batch")),
        "seq_q": st.select_slider(
            "Longest sequence",
            seqs,
            help=f"The sweep measures {SHORTEST}, {2 * SHORTEST}, … up to this length.",
            **tie("seq"),
        ),
        "heads": st.slider("Heads", 1, heads_max, **tie("heads")),
        "head_dim": st.select_slider("Head dim", head_dims, **tie("head_dim")),
        "dtype": st.segmented_control("Dtype", list(DTYPE_BYTES), required=True, width="stretch", **tie("dtype")),
        "direction": st.segmented_control(
            "Direction", list(DIRECTIONS), required=True, width="stretch", **tie("direction")
        ),
        "causal": st.toggle("Causal mask", **tie("causal")),
    }
    st.caption(ALIGNMENT)
    return shape


def path_widgets(tie: Tie, status: Mapping[str, PathStatus]) -> tuple[str, ...]:
    """One box for each path, always all of them; a path that cannot run here is greyed out and says why.

    `status` is what the worker says of each, nothing while that is not known.
    """
    with st.container(gap=None):
        st.markdown("Paths")
        return tuple(name for name in PATHS if path_box(name, status.get(name), tie(name, value=name in DEFAULT_PATHS)))


def path_box(name: str, here: PathStatus | None, tied: dict[str, Any]) -> bool:
    missing = here is not None and not here.usable
    held = missing and not st.session_state.get(name)  # one that a link has ticked can still be unticked
    what = PATHS[name].what
    return st.checkbox(
        f"{name} :small[:gray[{here.state}]]" if missing else name,
        help=f"{what}. {here.reason}" if here and here.reason else what,
        **({"disabled": held} | tied),
    )


def more_widgets(
    tie: Tie, queries: Sequence[str] = link.QUERIES, within: Sequence[str] = link.WITHIN
) -> tuple[dict[str, int | None], dict[str, Any]]:
    """The rest of the problem: kv_heads and window, None for as many as heads and for none; and how it is swept."""
    with st.popover("More", key="more", width="stretch"):
        problem = {
            "kv_heads": st.number_input(
                "KV heads",
                step=1,
                placeholder="as many as heads",
                help="Fewer than heads is grouped-query attention; it must divide heads.",
                **tie("kv_heads", value=None),
            ),
            "window": st.number_input(
                "Sliding window",
                step=1,
                placeholder="none",
                help="Keys at a distance less than this are seen: on both sides, with a causal mask before the query alone.",
                **tie("window", value=None),
            ),
        }
        seq_q = choice(
            "Queries",
            queries,
            "1 is decoding: one new token looks back over a cache of as many keys as the sequence is long.",
            tie("queries", default=queries[0]),
        )
        precision = choice(
            "Interval within ± %",
            within,
            "A point is measured until its 95 % interval reaches no further than this from its median.",
            tie("within", default="1"),
        )
        l2 = choice(
            "L2 cache",
            L2_MODES,
            "On a GPU. Cold: flushed before each sample. Hot: as the call before left it, which is right for what repeats "
            "on the same data.",
            tie("l2", default="cold"),
        )
        budget_s = st.number_input(
            "Budget of a run, seconds",
            1,
            BUDGET_MAX_S,
            help="A point predicted not to fit is skipped and shown with its prediction.",
            **tie("budget", value=int(DEFAULT_BUDGET_S)),
        )
        try_oom = st.toggle(
            "Try out of memory for real",
            help="On a GPU: a point predicted not to fit is tried all the same. Host memory is never tried.",
            **tie("try_oom"),
        )
    return problem, {
        "budget_s": budget_s,
        "try_oom": try_oom,
        "seq_q": None if seq_q == link.QUERIES[0] else int(seq_q),
        "precision": float(precision) / 100,
        "l2": l2,
    }


def choice(label: str, options: Sequence[str], help: str, tied: dict[str, Any]) -> str:
    return st.segmented_control(label, list(options), required=True, width="stretch", help=help, **tied)
