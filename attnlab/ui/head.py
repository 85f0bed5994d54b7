"""The first line of a page: what this machine measures on, and whose numbers are shown; and the page's last, which runs it
again when that is out of date."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import streamlit as st

from attnlab.run import WorkerState
from attnlab.ui import link, shell, status
from attnlab.ui.parts import timer
from attnlab.ui.text import escape

CHOICE_PX = 340
LOOK_EVERY_S = 1.0


def choose(
    worker: WorkerState,
    *,
    here: str,
    recorded: Iterable[str],
    refused: Iterable[str],
    address: str,
    key: str,
    say: Callable[[str], str],
    fallback: str = "",
    here_in_link: str | None = None,
) -> str:
    """Draws the line; returns what is shown: `here` or one of the names in `recorded`.

    refused       lines for what is recorded and cannot be read; they stand in the line
    address, key  names of the choice in the address and in the session
    say           a recorded name → what the list calls it
    fallback      what is shown unless a link or the visitor says otherwise; `here` when left out
    here_in_link  what the address says of `here`; None where it then says nothing
    """
    recorded = tuple(recorded)
    names, named = [here, *recorded], {name: name for name in recorded}
    known = named if here_in_link is None else {here_in_link: here, **named}
    offered = link.adopt(address, known, fallback or here)
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        trouble = "; ".join(filter(None, [shell.lab().store.problem, *refused]))
        line = status.device_line(worker, trouble=trouble, offer=bool(recorded))
        st.markdown(line, help=escape(trouble) or None, width="stretch", wrap=False)
        chosen = st.selectbox(
            "Show",
            names,
            names.index(offered),
            key=key if fallback in ("", here) else f"{key}_recorded",  # another default is another widget
            format_func=lambda name: say(name) if name in named else name,
            label_visibility="collapsed",
            width=CHOICE_PX,
        )
    if chosen != offered:
        link.publish(address, chosen, here_in_link if chosen == here else chosen)
    return chosen


def watch(worker: WorkerState, situation: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Called while a page is made of `worker`; notes `situation()` too. The function returned ends the page and runs it again
    once either is another."""
    lab = shell.lab()

    def known(worker: WorkerState) -> tuple:
        paths = tuple((path.name, path.usable) for path in worker.paths)
        return worker.device.key if worker.device else None, worker.state == "failed", paths, lab.store.problem

    drawn, page_runs = (known(worker), situation()), [True]

    @timer(run_every=LOOK_EVERY_S)
    def pulse() -> None:
        # The first call is the page's own run: to start over there, while points arrive all the time, would never end.
        if not page_runs and (known(lab.snapshot().worker), situation()) != drawn:
            st.rerun()
        page_runs.clear()

    return pulse
