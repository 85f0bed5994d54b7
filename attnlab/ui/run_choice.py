"""The first line of a page that holds measured points against arithmetic: the device, and which run the points are of."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from attnlab.run import Run, WorkerState
from attnlab.sweep import TIME
from attnlab.ui import head, link, shared_runs, shell

LAST = "Last run on this machine"


def last_run() -> Run | None:
    """This tab's run, else the newest of the server; None where nothing was timed yet."""
    lab = shell.lab()
    for run_id in (st.session_state.get(shared_runs.MINE, shared_runs.Mine()).run_id, None):
        run = lab.snapshot(run_id).run
        if run is not None and run.sweep.task == TIME and run.measurements:
            return run
    return None


def choose(key: str) -> tuple[Run | None, WorkerState, Callable[[], None]]:
    """Draws the line; returns the run that is shown (None: there is none yet), the worker, and what the page has to end with
    (head.watch): it then runs again when another run, or more of its points, are there. `key` names the choice in the session
    and in the address."""
    last = last_run()
    worker = shell.lab().snapshot().worker
    follow = head.watch(worker, _last)
    recorded, refused = shell.recorded_runs()
    fallback = LAST if last is not None else next(iter(recorded), LAST)
    chosen = head.choose(
        worker,
        here=LAST,
        recorded=recorded,
        refused=[*refused, link.unknown(key, ("last", *recorded))],
        address=key,
        key=key,
        say=lambda name: f"{name} · {recorded[name].mark}",
        fallback=fallback,
        here_in_link="last",
    )
    return recorded.get(chosen, last), worker, follow


def _last() -> tuple | None:
    last = last_run()
    return last and (last.id, last.state, len(last.measurements))
