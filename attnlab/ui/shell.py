"""What every page stands on: the navigation, the one lab of the server, the recorded runs.

A page begins with

    shell.guard()

because Streamlit takes a folder named `pages/` for its own automatic pages until some session has run `st.navigation`:
the first visit to a page's address after a server start would run that page alone, without app.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import urlsplit

import streamlit as st

from attnlab import devices, limits
from attnlab.board import QueueFull
from attnlab.devices import Choice
from attnlab.export import recorded_runs as load_recorded_runs
from attnlab.installed import lacks
from attnlab.lab import Lab, default_worker_command
from attnlab.limits import Limits
from attnlab.run import Run
from attnlab.store import Store, home
from attnlab.sweep import TIME, Sweep
from attnlab.trip import TASKS as ANATOMIES
from attnlab.ui import arrival, viewers
from attnlab.ui.text import escape

STAGE_SCRIPT = "pages/stage.py"  # the page without a menu
# (script, title), in the order of the menu; the first is where a visitor lands.
PAGES = (
    ("pages/live.py", "Live lab"),
    ("pages/explain.py", "Why it is fast"),
    ("pages/exactness.py", "Exactness"),
    ("pages/roofline.py", "Roofline"),
    ("pages/memory.py", "Memory"),
    ("pages/claims.py", "Claims"),
    ("pages/runs.py", "Runs"),
    (STAGE_SCRIPT, "Stage"),
    ("pages/environment.py", "Environment"),
)

STAGE = "stage"  # its address
ROUTED, STAGED, CHOSEN = "_routed", "_staged", "_device"


def navigate() -> None:
    """Runs the page of the visitor's address, below the menu of all of them; on the stage there is none."""
    if find_spec("plotly") is None:  # its charts are on almost every page; what else is missing a page can say
        st.error(escape(lacks("plotly")))
        st.stop()
    st.session_state[ROUTED] = True
    pages = [st.Page(script, title=title, default=i == 0) for i, (script, title) in enumerate(PAGES)]
    staged = st.session_state.get(STAGED, urlsplit(st.context.url or "").path.endswith(f"/{STAGE}"))
    page = st.navigation(pages, position="hidden" if staged else "top")
    if staged != (page.url_path == STAGE):  # which page it is, is known only now
        staged = not staged
        page = st.navigation(pages, position="hidden" if staged else "top")
    st.session_state[STAGED] = staged
    arrival.visit(page.url_path)
    with viewers.drawing():
        page.run()
        arrival.listen()
    if viewers.many():
        viewers.let_it_go()


def guard() -> None:
    """Starts over through app.py when a visitor came past it (see the module's opening)."""
    if ROUTED not in st.session_state:
        st.session_state[ROUTED] = True
        st.navigation([st.Page(script, title=title, default=i == 0) for i, (script, title) in enumerate(PAGES)])
        st.rerun()


@st.cache_resource(show_spinner=False)
def _public() -> Limits | str | None:
    """What this server's visitors may ask for; a line where the environment says something that is not understood."""
    try:
        return limits.public()
    except ValueError as error:
        return str(error)


def public() -> Limits | None:
    """What this server's visitors may ask for; None where it is nobody's but the user's. Ends the page where that is not
    understood: a public server without limits is worse than none."""
    found = _public()
    if isinstance(found, str):
        st.error(escape(found))
        st.stop()
    return found


def admitted(sweep: Sweep) -> tuple[Sweep | None, str]:
    """(the sweep as this server runs it, ""), or (None, why it does not, in one line)."""
    found = public()
    why = found.refusal(sweep) if found else ""
    return (None, why) if why else (found.cut(sweep) if found else sweep, "")


def submit(sweep: Sweep, *, fresh: bool = False, quietly: bool = False) -> str | None:
    """Lab.submit within the limits of the server: the run's id, or None after a note to the visitor that says why not;
    `quietly` without it, for one who was told before."""
    found = public()
    cut, why = admitted(sweep)
    try:
        if cut is not None:
            return lab().submit(cut, fresh=fresh, room=found.queue if found else None)
    except QueueFull as full:
        why = f"this public server has its hands full: {full}; ask again in a minute"
    if not quietly:
        st.toast(escape(why), icon="✋")
    return None


@st.cache_resource(show_spinner=False)
def _devices() -> tuple[Choice, ...]:
    return devices.here()


def device_choices() -> tuple[Choice, ...]:
    """The GPUs that a visitor can choose from; none where there is but one, or where the worker is on another machine."""
    there = () if os.environ.get("ATTNLAB_WORKER") else _devices()
    return there if len(there) > 1 else ()


def chosen_device() -> Choice | None:
    """What this tab measures on: what it has chosen, what its link says, the first; None where there is nothing to choose."""
    there = device_choices()
    wanted = st.session_state.get(CHOSEN, st.query_params.get("device"))
    return next((choice for choice in there if choice.value == wanted), there[0] if there else None)


def choose_device(on_change: Callable[[], None]) -> None:
    """Draws the choice where there is one. `on_change` is called once another device is chosen, before the page runs."""
    if not (there := device_choices()):
        return

    def chosen() -> None:
        st.session_state[CHOSEN] = st.session_state["device_box"].value
        st.query_params["device"] = st.session_state[CHOSEN]
        on_change()

    index = there.index(here := chosen_device())
    names = {"format_func": lambda choice: choice.short, "help": here.name}
    st.selectbox("Device", there, index, key="device_box", on_change=chosen, **names)


def lab() -> Lab:
    """The lab of the device that this tab measures on: one for each device of this server, whatever the number of tabs.
    Making it starts the worker."""
    choice = chosen_device()
    return _lab(choice) if choice else _lab(None)


@st.cache_resource(show_spinner=False, hash_funcs={Choice: lambda choice: choice.value})
def _lab(choice: Choice | None) -> Lab:
    command = devices.worker_command(choice, default_worker_command()) if choice else None
    found = _public()
    bound = {"run_limit_s": float(found.budget_s)} if isinstance(found, Limits) else {}
    return Lab(Store(home()), worker_command=command, **bound)


@st.cache_resource(show_spinner=False)
def recordings() -> tuple[dict[str, Run], list[str]]:
    """The runs that ship with AttnLab, measured by this program on real GPUs, by the name of their file, newest first; and
    a line for each file that cannot be read. Read once a server."""
    return load_recorded_runs()


def recorded_runs() -> tuple[dict[str, Run], list[str]]:
    """Those of them that measured time, which the live page replays; and the lines for what cannot be read."""
    runs, refused = recordings()
    return {name: run for name, run in runs.items() if run.sweep.task == TIME}, refused


def recorded_looks() -> tuple[dict[str, tuple[Run, ...]], list[str]]:
    """Those of them that looked at answers, by the name of the device; and the lines for what cannot be read."""
    runs, refused = recordings()
    devices: dict[str, tuple[Run, ...]] = {}
    for run in runs.values():
        if run.sweep.task not in (TIME, *ANATOMIES):
            name = run.device.name if run.device else "unknown device"
            devices[name] = (*devices.get(name, ()), run)
    return devices, refused


def recorded_anatomies() -> tuple[dict[str, Run], list[str]]:
    """Those of them that took a call apart; and the lines for what cannot be read."""
    runs, refused = recordings()
    return {name: run for name, run in runs.items() if run.sweep.task in ANATOMIES}, refused
