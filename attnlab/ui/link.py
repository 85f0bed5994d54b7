"""The page's address: what a link fills the page with, and what in it cannot be.

The form's state lives in the address, so a link reproduces the page. Streamlit's `bind="query-params"` keeps a value out
of the address while it equals the widget's declared default. A declared default must therefore not depend on the device,
or one link would mean two shapes on two machines: the sliders declare their smallest value, dtype and direction declare
none (so an address that this page wrote always holds them), and the defaults that fit the device are seeded into the
session.
A slider holds the usual values; any other stands in a number beside it (`other_seq`, `other_head_dim`), so that no slider's
stops depend on what a link says.
A choice whose options depend on what is shown (`replay`, `picked_seq`) is not bound but read and written here: a bound
one would put its label into the address and lose a value that is its first option.
Nothing is trusted because the browser checked it: the address is validated here, and the values again by the Sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import streamlit as st

from attnlab import checked
from attnlab.figures import CLOCKS, COUNTS
from attnlab.paths import PATHS
from attnlab.problem import DIRECTIONS, DTYPE_BYTES, LIMITS
from attnlab.run import Run, WorkerState
from attnlab.sweep import BUDGET_MAX_S, L2_MODES, Sweep, default_sweep, powers_of_two

BATCH_MAX = 64
SEQS = powers_of_two(131_072)
HEADS_MAX = 128
HEAD_DIMS = (32, 64, 96, 128, 192, 256)
AS_MANY = "as many as keys"  # queries, where no number says otherwise
LENGTHS = "whole numbers with commas between them, one for each sequence of the batch"
WITHIN = ("0.5", "1", "2", "5")  # percent

UNDECLARED = ("dtype", "direction")  # widgets without a default of their own
SEEDED = "_form_seeded"  # what the form was filled with before the device was known
KNOWN = "_form_known"  # what all widgets said last
BEFORE = "_form_before"  # what they were filled with before the device was known, once that has been replaced
FAULTS = "_link_faults"
SWEEP = "_link_sweep"  # what was shown beside the faults; they are old news once the form says something else

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Fault:
    """A parameter of the link that is not understood: what it said, and what it may say."""

    key: str
    text: str
    legal: str


def seed(worker: WorkerState, going_on: Mapping[str, int | str | bool | None] | None = None) -> None:
    """Fills the form before its widgets exist: the link first, then what fits the device. Once a run of the page.

    `going_on` are the form's values for the sweep that runs. Whoever comes without a word of a sweep is shown that one.
    """
    device = worker.device
    defaults = shape_values(default_sweep(device.kind if device else "cpu"))
    if _lost():
        st.session_state.update({**defaults, **st.session_state.get(KNOWN, {})})
    if SEEDED not in st.session_state and going_on and not set(st.query_params) & set(going_on):
        st.session_state.update(going_on)
        st.query_params.update(in_address(going_on))
        st.session_state[SEEDED] = {}
    if SEEDED not in st.session_state:
        link = dict(st.query_params)
        wrong = {fault.key for fault in st.session_state.get(FAULTS, [])}
        # In a link that this page wrote a missing value is its widget's declared default.
        by_this_page = "dtype" in link and not wrong & set(UNDECLARED)
        seeds = {
            key: value
            for key, value in defaults.items()
            if key in wrong or (key not in link and (key in UNDECLARED or not by_this_page))
        }
        st.session_state.update(seeds)
        if device is not None:
            st.query_params.update({key: str(value) for key, value in seeds.items()})
        st.session_state[SEEDED] = {} if device is not None else seeds
    elif device is not None and (seeded := st.session_state[SEEDED]):
        # Seeded before the device was known, and now it is. What the visitor has touched meanwhile is left alone.
        st.session_state[SEEDED] = {}
        if all(st.session_state.get(key) == value for key, value in seeded.items()):
            st.session_state.update({key: defaults[key] for key in seeded})
            st.session_state.pop(SWEEP, None)  # this change is not the visitor's
            st.session_state[BEFORE] = seeded


def _lost() -> bool:
    """Whether the browser speaks of a form that is not ours: on a busy server the messages that told it may have been
    dropped. Then it says that no dtype is chosen, and of every other widget the declared default; or, at once of all of them,
    what they held before the device was known. A visitor changes one thing after the other."""
    state, known, before = st.session_state, st.session_state.get(KNOWN, {}), st.session_state.get(BEFORE, {})
    if any(key in state and state[key] is None for key in UNDECLARED):
        return True
    changed = [key for key in before if state.get(key) != known.get(key)]
    return len(changed) > 1 and all(state.get(key) == value for key, value in before.items())


def keep() -> None:
    """Notes what the form says, once its widgets are there: `seed` goes back to it when a browser has lost it."""
    keys = form_values(default_sweep("cpu")).keys() | how_values(default_sweep("cpu")).keys()
    st.session_state[KNOWN] = {key: st.session_state[key] for key in keys if key in st.session_state}


def in_address(values: Mapping[str, int | str | bool | None]) -> dict[str, str]:
    """The form's values as an address holds them."""
    said = {key: value for key, value in values.items() if value not in (None, "")}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in said.items()}


def form_values(sweep: Sweep) -> dict[str, int | str | bool | None]:
    """The form's values for the whole problem of a sweep, by widget key. What no slider can hold goes into the number beside
    it; the slider then stands at the next smaller value."""
    problem, values = sweep.problem, shape_values(sweep)
    others = {}
    for key, other, stops in (("seq", "other_seq", SEQS), ("head_dim", "other_head_dim", HEAD_DIMS)):
        value = values[key]
        others[other] = None if value in stops else value
        values[key] = max((stop for stop in stops if stop <= value), default=stops[0])
    return {**values, **others, **more_values(sweep), "causal": problem.causal}


def more_values(sweep: Sweep) -> dict[str, int | str | None]:
    """The rest of a problem, by widget key; None or "" for what is as usual."""
    problem = sweep.problem
    return {
        "kv_heads": None if problem.kv_heads == problem.heads else problem.kv_heads,
        "window": problem.window,
        "queries": sweep.seq_q,
        "lengths": ", ".join(map(str, problem.lengths_at(sweep.seqs[-1]) or ())),
    }


def how_values(sweep: Sweep) -> dict[str, int | str | bool]:
    """How a sweep measures, and through what, by widget key."""
    return {
        "within": f"{100 * sweep.precision:g}",
        "l2": sweep.l2,
        "budget": max(1, round(sweep.budget_s)),
        "try_oom": sweep.try_oom,
        **{path: path in sweep.paths for path in PATHS},
    }


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


def adopt(key: str, options: Mapping[str, Choice], fallback: Choice) -> Choice:
    """What a choice starts with: what was chosen last, else what the address says, else `fallback`.

    `options` are the legal choices, by what an address calls them.
    """
    choice = st.session_state.get(f"_chosen_{key}", options.get(st.query_params.get(key)))
    return choice if choice in options.values() else fallback


def unknown(key: str, options: Iterable[str]) -> str:
    """What the address says of a choice that is not there, in one line; empty when it says nothing wrong."""
    asked, legal = st.query_params.get(key), tuple(options)
    return "" if asked in (None, *legal) else f"{key} is {checked.shown(asked)} in the link, legal: {', '.join(legal)}"


def publish(key: str, choice: Choice, text: str | None) -> None:
    """Keeps what the visitor chose in the session, and in the address as `text`; None takes it out."""
    st.session_state[f"_chosen_{key}"] = choice
    if text is not None:
        st.query_params[key] = text
    elif key in st.query_params:
        del st.query_params[key]


def check(recorded: Mapping[str, Run]) -> None:
    """Looks at a link once, before anything is made of it, and starts over without what is wrong with it: Streamlit
    cannot read every number itself (1e999 for one). `recorded` are the runs that `replay` may name."""
    if FAULTS in st.session_state:
        return
    link = {key: ", ".join(st.query_params.get_all(key)) for key in st.query_params}
    st.session_state[FAULTS] = faults(link, recorded)
    for fault in st.session_state[FAULTS]:
        del st.query_params[fault.key]
    if st.session_state[FAULTS]:
        st.rerun()


def note(sweep: Sweep | None) -> str:
    """What in the link was not understood, in one line; empty when all was, or once the form says something else."""
    if sweep != st.session_state.setdefault(SWEEP, sweep):
        st.session_state[FAULTS] = []
    return "; ".join(
        f"{fault.key} is {checked.shown(fault.text)} in the link, legal: {fault.legal}"
        + (f"; shown instead: {shown}" if (shown := st.session_state.get(fault.key)) is not None else "")
        for fault in st.session_state[FAULTS]
    )


def faults(link: Mapping[str, str], recorded: Mapping[str, Run]) -> list[Fault]:
    """What in a link cannot be, one for each parameter that is not understood."""
    whole = {
        "batch": range(1, BATCH_MAX + 1),
        "seq": SEQS,
        "heads": range(1, HEADS_MAX + 1),
        "head_dim": HEAD_DIMS,
        "kv_heads": range(-(2**31), 2**31),
        "window": range(1, LIMITS["seq_kv"] + 1),
        "queries": range(1, LIMITS["seq_q"] + 1),
        "other_seq": range(1, LIMITS["seq_q"] + 1),
        "other_head_dim": range(1, LIMITS["head_dim"] + 1),
        "budget": range(1, BUDGET_MAX_S + 1),
        "picked_seq": tuple(sorted({*SEQS, *(seq for run in recorded.values() for seq in run.sweep.seqs)})),
    }
    words = {
        "dtype": tuple(DTYPE_BYTES),
        "direction": DIRECTIONS,
        "within": WITHIN,
        "l2": L2_MODES,
        "clock": tuple(CLOCKS),
        "count": COUNTS,
        "replay": tuple(recorded),
    }
    switches = ("causal", "live", "try_oom", "stage", *PATHS)
    found = []
    for key, text in link.items():
        if key == "queries" and text == AS_MANY:
            continue  # what it means without a number
        if key in whole and not (re.fullmatch("-?[0-9]{1,10}", text) and int(text) in whole[key]):
            found.append(Fault(key, text, legal_numbers(whole[key])))
        elif key in words and text not in words[key]:
            found.append(Fault(key, text, ", ".join(words[key]) or "nothing, for no run is recorded here"))
        elif key == "lengths" and not re.fullmatch(r"[0-9]{1,10}( *, *[0-9]{1,10})*", text.strip()):
            found.append(Fault(key, text, LENGTHS))
        elif key in switches and text.lower() not in ("true", "false"):
            found.append(Fault(key, text, "true, false"))
    return found


def legal_numbers(numbers: range | tuple[int, ...]) -> str:
    if isinstance(numbers, range):
        return f"whole numbers from {numbers.start:,} to {numbers.stop - 1:,}"
    return ", ".join(map(str, numbers))
