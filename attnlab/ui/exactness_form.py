"""The exactness page's form: a shape, dtypes and paths → one sweep for each dtype, or one line that says why there is none.

What the form holds lives in the session under a name that is no widget's, because Streamlit forgets the widgets of a page
that is left, and in the address, so that a link shows the same checks. An address is read once and validated here. Its
names are not those of the live page, whose widgets are bound to theirs as long as the session lives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from attnlab import checked, verdicts
from attnlab.paths import PATHS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, FORWARD_BACKWARD, AttentionProblem, ProblemError
from attnlab.run import WorkerState
from attnlab.sweep import SHORTEST, Sweep, powers_of_two
from attnlab.ui import link
from attnlab.ui.text import escape

LONGEST = 16_384
SEQS = powers_of_two(LONGEST)
DTYPES = ("bfloat16", "float32")  # at first: the one that rounds, and the one that hardly does
PREFIX = "x_"  # of a widget's key, and of its name in the address
RECORDED = "x_recorded_"
HELD, FAULTS, SEEDED = "_exactness_form", "_exactness_faults", "_exactness_seeded"

WHOLE = {
    "batch": range(1, link.BATCH_MAX + 1),
    "seq": SEQS,
    "heads": range(1, link.HEADS_MAX + 1),
    "head_dim": link.HEAD_DIMS,
}
SEVERAL = {"dtypes": tuple(DTYPE_BYTES), "paths": tuple(PATHS)}


@dataclass(frozen=True)
class Form:
    """What the form asks for. `sweeps` is empty where recorded runs are shown, and when `refusal` says why, in one line."""

    sweeps: tuple[Sweep, ...]  # a look at exactness for each dtype
    refusal: str = ""
    link_note: str = ""  # what in the link was not understood

    def looks(self, task: str, seq: int) -> tuple[Sweep, ...]:
        """What a button of the page asks for. All but exactness is looked at in the first dtype, at one length."""
        if task == "exactness" or not self.sweeps:
            return self.sweeps
        problem, paths = self.sweeps[0].problem, self.sweeps[0].paths
        if task == "determinism":
            return (verdicts.look(replace(problem, direction=FORWARD_BACKWARD), (seq,), paths, task=task),)
        return (verdicts.look(problem, (SHORTEST,), paths, task=task),)


def form(worker: WorkerState, recorded: Sequence[Sweep], shows: Sequence[str]) -> Form:
    """Draws the form into the current container. Where `recorded` runs are shown, greyed out and with their shape, in
    widgets of their own: what the visitor had set comes back with this machine. `shows` are what a link may ask to be
    shown."""
    seed(worker, shows)
    if recorded:
        held = held_of(recorded)
        st.session_state.update({RECORDED + key: as_widget(value) for key, value in held.items()})
        widgets(RECORDED, held)
        return Form(())
    held = widgets(PREFIX, st.session_state[HELD])
    absent = [path for path in worker.paths if not path.usable]
    why = "  \n".join(escape(f"{path.name}: {path.reason}") for path in absent) or None
    st.caption(f"Not here: {', '.join(path.name for path in absent)}" if absent else "", help=why)
    if held != st.session_state[HELD]:
        st.session_state[HELD], st.session_state[FAULTS] = held, []
    if worker.device is not None:
        st.query_params.update({PREFIX + key: as_text(value) for key, value in held.items()})
    sweeps, refusal = asked(held)
    note = "; ".join(
        f"{fault.key} is {checked.shown(fault.text)} in the link, legal: {fault.legal}" for fault in st.session_state[FAULTS]
    )
    return Form(sweeps, refusal, note)


def widgets(prefix: str, holds: dict[str, Any]) -> dict[str, Any]:
    """Draws them and returns what they hold, by name; a range reaches as far as what it `holds`."""
    disabled = prefix == RECORDED
    tie = {name: {"key": prefix + name, "disabled": disabled} for name in holds}
    return {
        "batch": st.slider("Batch", 1, max(link.BATCH_MAX, holds["batch"]), **tie["batch"]),
        "seq": st.select_slider(
            "Longest sequence",
            sorted({*SEQS, holds["seq"]}),
            help=f"Checked are {SHORTEST}, {2 * SHORTEST}, … up to this length.",
            **tie["seq"],
        ),
        "heads": st.slider("Heads", 1, max(link.HEADS_MAX, holds["heads"]), **tie["heads"]),
        "head_dim": st.select_slider("Head dim", sorted({*link.HEAD_DIMS, holds["head_dim"]}), **tie["head_dim"]),
        "dtypes": tuple(
            st.segmented_control(
                "Dtypes",
                list(DTYPE_BYTES),
                selection_mode="multi",
                width="stretch",
                help="Exactness is checked in each; what else is on the page, in the first.",
                **tie["dtypes"],
            )
        ),
        "direction": st.segmented_control(
            "Direction", list(DIRECTIONS), required=True, width="stretch", **tie["direction"]
        ),
        "causal": st.toggle("Causal mask", **tie["causal"]),
        "paths": tuple(st.multiselect("Paths", list(PATHS), **tie["paths"])),
    }


def held_of(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """What the form would hold for them: the shape of the first look at exactness, every dtype and path."""
    first = next((sweep for sweep in sweeps if sweep.task == "exactness"), sweeps[0])
    problem = first.problem
    return {
        "batch": problem.batch,
        "seq": first.seqs[-1],
        "heads": problem.heads,
        "head_dim": problem.head_dim,
        "dtypes": tuple(dtype for dtype in DTYPE_BYTES if any(sweep.problem.dtype == dtype for sweep in sweeps)),
        "direction": problem.direction,
        "causal": problem.causal,
        "paths": tuple(path for path in PATHS if any(path in sweep.paths for sweep in sweeps)),
    }


def asked(held: dict[str, Any]) -> tuple[tuple[Sweep, ...], str]:
    """(one sweep for each dtype, "") or ((), why not)."""
    if not held["dtypes"]:
        return (), f"no dtype is chosen; legal: {', '.join(DTYPE_BYTES)}"
    try:
        return tuple(
            verdicts.look(
                AttentionProblem(
                    batch=held["batch"], seq_q=held["seq"], heads=held["heads"], head_dim=held["head_dim"],
                    causal=held["causal"], direction=held["direction"], dtype=dtype,
                ),
                powers_of_two(held["seq"]), held["paths"], task="exactness",
            )
            for dtype in DTYPE_BYTES if dtype in held["dtypes"]
        ), ""  # fmt: skip
    except ProblemError as error:
        return (), str(error)


def seed(worker: WorkerState, shows: Sequence[str]) -> None:
    """Fills the form before its widgets exist: the link first, then what was set before, then what fits the device."""
    state, device = st.session_state, worker.device
    if HELD not in state:
        state[HELD], state[FAULTS] = read(dict(st.query_params), defaults(worker), shows)
        state[SEEDED] = None if device is not None else (dict(st.query_params), state[HELD])
    elif device is not None and state[SEEDED] is not None:
        # Seeded before the device was known, and now it is. What the visitor has touched meanwhile is left alone.
        query, before = state[SEEDED]
        state[SEEDED] = None
        if all(state.get(PREFIX + key, as_widget(value)) == as_widget(value) for key, value in before.items()):
            state[HELD], _ = read(query, defaults(worker), shows)
            state.update({PREFIX + key: as_widget(value) for key, value in state[HELD].items()})
    for key, value in state[HELD].items():
        state.setdefault(PREFIX + key, as_widget(value))


def defaults(worker: WorkerState) -> dict[str, Any]:
    problem = verdicts.usual(worker.device.kind if worker.device else "cpu", "exactness").problem
    here = {path.name for path in worker.paths if path.usable}
    return {
        "batch": problem.batch,
        "seq": problem.seq_q,
        "heads": problem.heads,
        "head_dim": problem.head_dim,
        "dtypes": DTYPES,
        "direction": problem.direction,
        "causal": problem.causal,
        "paths": ("standard", "flash", *(name for name in PATHS if name.startswith("sdpa") and name in here)),
    }


def read(
    query: dict[str, str], values: dict[str, Any], shows: Sequence[str]
) -> tuple[dict[str, Any], list[link.Fault]]:
    """(`values` with what the address says in their place, what in the address cannot be)."""
    found, faults = dict(values), []
    if query.get("show", next(iter(shows), None)) not in (*shows, None):
        faults.append(link.Fault("show", query["show"], ", ".join(shows) or "nothing, for no look is recorded here"))
    if not query.get("at", "1").isascii() or not query.get("at", "1").isdigit():
        faults.append(link.Fault("at", query["at"], "a sequence length that is checked"))
    for name, text in query.items():
        key = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        if key in WHOLE:
            good, legal = (
                bool(re.fullmatch("[0-9]{1,10}", text)) and int(text) in WHOLE[key],
                link.legal_numbers(WHOLE[key]),
            )
            value = int(text) if good else None
        elif key in SEVERAL:
            value = tuple(part for part in text.split(",") if part)
            good, legal = set(value) <= set(SEVERAL[key]), f"{', '.join(SEVERAL[key])}, with commas between them"
            value = tuple(dict.fromkeys(value))
        elif key == "direction":
            value, good, legal = text, text in DIRECTIONS, ", ".join(DIRECTIONS)
        elif key == "causal":
            value, good, legal = text.lower() == "true", text.lower() in ("true", "false"), "true, false"
        else:
            continue
        if good:
            found[key] = value
        else:
            faults.append(link.Fault(name, text, legal))
    return found, faults


def as_text(value: Any) -> str:
    return (
        ",".join(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)
    )


def as_widget(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
