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
from attnlab.limits import Limits
from attnlab.paths import PATHS
from attnlab.presets import PRESETS
from attnlab.problem import (
    ALIGNMENT,
    DIRECTIONS,
    DTYPE_BYTES,
    LIMITS,
    AttentionProblem,
    ProblemError,
    check_whole_number,
)
from attnlab.run import Run, WorkerState
from attnlab.sweep import BUDGET_MAX_S, DEFAULT_BUDGET_S, DEFAULT_PATHS, L2_MODES, SHORTEST, Sweep, lengths_up_to
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


def seed(worker: WorkerState, latest: Run | None) -> None:
    """link.seed; whoever comes while the lab's latest run goes on, without a word of another sweep, watches that one."""
    first = link.SEEDED not in st.session_state
    link.seed(worker, values_for(latest.sweep) if first and latest and latest.active else None)


def form(worker: WorkerState, limits: Limits | None = None) -> Form:
    """Draws the form into the current container; `seed` has filled it. `limits` of a public server, where what a run may
    take is no visitor's to set."""
    preset_widget(key="preset", on_change=fill)
    shape = shape_widgets(in_link)
    if any(shape[name] is None for name in link.UNDECLARED):
        st.rerun()  # link.seed mends it
    paths = path_widgets(in_link, {path.name: path for path in worker.paths})
    says = st.container()
    more, how = more_widgets(in_link, limits=limits)
    link.keep()
    sweep, refusal = None, ""
    try:
        sweep = asked(shape, more, paths, how)
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
        **link.more_values(sweep),
        "causal": problem.causal,
        "other_seq": None,
        "other_head_dim": None,
        **link.how_values(sweep),
    }
    st.session_state.update({as_recorded(name)["key"]: value for name, value in values.items()})
    preset_widget(key="recorded_preset", disabled=True)
    shape_widgets(
        as_recorded,
        batch_max=max(link.BATCH_MAX, problem.batch),
        seqs=sorted({*link.SEQS, *sweep.seqs}),
        heads_max=max(link.HEADS_MAX, problem.heads),
        head_dims=sorted({*link.HEAD_DIMS, problem.head_dim}),
    )
    path_widgets(as_recorded, {})
    st.container()
    more_widgets(as_recorded, within=tuple(dict.fromkeys([*link.WITHIN, values["within"]])))
    return Form(sweep)


def values_for(sweep: Sweep) -> dict[str, Any] | None:
    """The form's values for this very sweep, by widget key; None where the form cannot ask for it."""
    values = {**link.form_values(sweep), **link.how_values(sweep)}
    if link.faults(link.in_address(values), {}):
        return None
    shape = {name: values[name] for name in ("batch", "heads", "head_dim", "dtype", "direction", "causal")}
    more = {name: values[name] for name in ("kv_heads", "window", "lengths", "other_seq", "other_head_dim")}
    how = {name: values[name] for name in ("try_oom", "l2")}
    how |= {"budget_s": values["budget"], "seq_q": values["queries"], "precision": float(values["within"]) / 100}
    paths = tuple(path for path in PATHS if values[path])
    try:
        return values if asked({**shape, "seq_q": values["seq"]}, more, paths, how) == sweep else None
    except ProblemError:
        return None


def asked(shape: dict[str, Any], more: dict[str, Any], paths: tuple[str, ...], how: dict[str, Any]) -> Sweep:
    """What the widgets say. Raises ProblemError."""
    others = {"seq_q": more["other_seq"], "head_dim": more["other_head_dim"]}
    shape = shape | {name: value for name, value in others.items() if value is not None}
    check_whole_number("longest sequence", shape["seq_q"], LIMITS["seq_q"])
    problem = AttentionProblem(
        **shape, kv_heads=more["kv_heads"], window=more["window"], lengths=read_lengths(more["lengths"])
    )
    return Sweep(problem=problem, seqs=lengths_up_to(problem.seq_q), paths=paths, **how)


def read_lengths(text: str) -> tuple[int, ...] | None:
    """The numbers of "512, 301"; None for nothing. Raises ProblemError."""
    try:
        return tuple(int(part) for part in text.split(",")) if text.strip() else None
    except ValueError:
        raise ProblemError(f"lengths is {text!r}; legal: {link.LENGTHS}, or nothing for no padding") from None


def preset_widget(**tied: Any) -> None:
    """A list that fills the form once; what it has filled in can be edited, so it does not stay chosen."""
    st.selectbox(
        "Preset",
        list(PRESETS),
        index=None,
        format_func=lambda name: PRESETS[name].title,
        placeholder="Fill in what a model runs",
        help="The shape of one layer of a model. It fills in the form below; everything there can still be changed.",
        **tied,
    )


def fill() -> None:
    """Runs before the page does: the preset's values into the widgets, which are not there yet."""
    preset, st.session_state["preset"] = PRESETS.get(st.session_state["preset"]), None
    if preset is not None:
        st.session_state.update(link.form_values(preset.sweep()))


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
            help=f"The sweep measures {SHORTEST}, {2 * SHORTEST}, … up to this length. Any other is under More.",
            **({"disabled": st.session_state.get("other_seq") is not None} | tie("seq")),
        ),
        "heads": st.slider("Heads", 1, heads_max, **tie("heads")),
        "head_dim": st.select_slider(
            "Head dim",
            head_dims,
            help="Any other is under More.",
            **({"disabled": st.session_state.get("other_head_dim") is not None} | tie("head_dim")),
        ),
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
        help=f"{what}. {escape(here.reason)}" if here and here.reason else what,
        **({"disabled": held} | tied),
    )


def more_widgets(
    tie: Tie, within: Sequence[str] = link.WITHIN, limits: Limits | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rest of the problem: kv_heads, window, lengths as text, and other_seq and other_head_dim, which go before their
    sliders; None or "" for what is as usual. And how it is swept."""
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
            "lengths": st.text_input(
                "Lengths",
                placeholder="no padding",
                help="A padded batch: the tokens of each sequence at the longest length, such as 512, 301 for a batch of 2;"
                " 0 is an empty sequence. Shorter points have them in proportion.",
                **tie("lengths", value=""),
            ),
        }
        seq_q = st.number_input(
            "Queries",
            step=1,
            placeholder=link.AS_MANY,
            help="1 is decoding: one new token looks back over a cache of as many keys as the sequence is long. Any other"
            " number is cross-attention: so many queries at every point.",
            **tie("queries", value=None),
        )
        problem |= {
            "other_seq": st.number_input(
                "Other longest sequence",
                step=1,
                placeholder="as the slider says",
                help="The sweep ends there, whether it is a power of two or not.",
                **tie("other_seq", value=None),
            ),
            "other_head_dim": st.number_input(
                "Other head dim", step=1, placeholder="as the slider says", **tie("other_head_dim", value=None)
            ),
        }
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
        if limits:
            st.caption(limits.words())
            taking = {"budget_s": limits.budget_s, "try_oom": False}
        else:
            taking = taking_widgets(tie)
    return problem, {**taking, "seq_q": seq_q, "precision": float(precision) / 100, "l2": l2}


def taking_widgets(tie: Tie) -> dict[str, Any]:
    """What a run may take of the device: seconds, and its memory to the end."""
    return {
        "budget_s": st.number_input(
            "Budget of a run, seconds",
            1,
            BUDGET_MAX_S,
            help="A point predicted not to fit is skipped and shown with its prediction.",
            **tie("budget", value=int(DEFAULT_BUDGET_S)),
        ),
        "try_oom": st.toggle(
            "Try out of memory for real",
            help="On a GPU: a point predicted not to fit is tried all the same. Host memory is never tried.",
            **tie("try_oom"),
        ),
    }


def choice(label: str, options: Sequence[str], help: str, tied: dict[str, Any]) -> str:
    return st.segmented_control(label, list(options), required=True, width="stretch", help=help, **tied)
