"""Whose runs are whose: a run that several tabs wait for is not one tab's to end.

Tabs that ask for the same sweep share its run. One that wants something else leaves it, and a run ends early only with the
last tab that waits for it. A page says after each of its runs what it waits for:

    with shared_runs.changing():
        shared_runs.leave(earlier)             those that nobody else waits for end
        run_id = shell.submit(sweep)
        shared_runs.claim("live", [run_id])
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnlab.sweep import Sweep
from attnlab.ui import shell

MINE = "mine"  # where a session keeps it
REHEARSAL = "rehearsal"  # waits for its runs as a tab does, and is the server's


@dataclass
class Mine:
    """What a tab of the live page wants and shows. One object, because writing into the session is where Streamlit breaks a
    run off for a newer one: a sweep that was submitted a moment before would be nobody's, and hold the device."""

    run_id: str | None = None  # the run it shows
    next_id: str | None = None  # the one it shows when that has ended
    asked: Sweep | None = None  # the sweep it asked for last
    request: str | None = None  # the button pressed: run, again or stop
    refused: bool = False  # the queue of a public server had no room for what it asked for last


@st.cache_resource(show_spinner=False)
def _claims() -> tuple[threading.RLock, dict[tuple[str, str], frozenset[str]]]:
    """(who, page) → the ids of the runs that it waits for; one for the server."""
    return threading.RLock(), {}


def _me() -> str:
    """This tab, as Streamlit names its session; a reload is another one."""
    return get_script_run_ctx().session_id


def _there(who: str) -> bool:
    """Whether somebody looks at it: a tab that was closed or reloaded waits for nothing."""
    return who == REHEARSAL or runtime.get_instance().is_active_session(who)


def changing() -> AbstractContextManager:
    """While one tab leaves and asks, no other one does: or it could end a run that was joined a moment ago."""
    return _claims()[0]


def claim(page: str, run_ids: Iterable[str | None], who: str | None = None) -> None:
    """What this tab, or `who`, waits for on the page, in place of what it did before."""
    lock, claims = _claims()
    with lock:
        claims[who or _me(), page] = frozenset(filter(None, run_ids))
        for key in [key for key, ids in claims.items() if not ids or not _there(key[0])]:
            del claims[key]


def others(run_id: str) -> int:
    """How many besides this tab wait for the run."""
    (lock, claims), me = _claims(), _me()
    with lock:
        return len({who for (who, _), ids in claims.items() if run_id in ids and who != me and _there(who)})


def leave(run_ids: Iterable[str | None]) -> bool:
    """This tab waits for them no longer: those end that nobody else waits for. True when one of them goes on."""
    with changing():
        shared = {run_id: others(run_id) for run_id in filter(None, run_ids)}
        for run_id, waiting in shared.items():
            if not waiting:
                shell.lab().cancel(run_id)
        return any(shared.values())


def stop(run_ids: Iterable[str | None]) -> None:
    """The Stop button. On one's own machine it ends them whoever waits; a visitor of a public server ends nobody else's."""
    if shell.public() is not None:
        if leave(run_ids):
            st.toast("Others watch this run too: it goes on.", icon="✋")
        return
    for run_id in filter(None, run_ids):
        shell.lab().cancel(run_id)
