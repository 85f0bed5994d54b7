"""The rehearsal of a talk on this server: its runs, kept while the server lives, and the table of what they brought.

The results themselves are in the store, where the stage finds them again after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from attnlab import rehearsal
from attnlab.run import Run
from attnlab.sweep import Sweep
from attnlab.talk import Talk
from attnlab.ui import headline, shared_runs, shell
from attnlab.ui.text import escape, local

NAME = "Rehearsal"  # of its runs, on the runs page; it tells them after a restart too
BADGES = dict(zip(rehearsal.VERDICTS, ("gray", "green", "orange", "red", "violet"), strict=True))


@st.cache_resource(show_spinner=False)
def _asked() -> dict[Sweep, str]:
    """The newest rehearsal's run of each sweep; one for the server."""
    return {}


def begin(talk: Talk, device_kind: str) -> None:
    """Asks for the run of every step that measures, anew, one after the other; steps that ask the same share it."""
    stop()
    _asked().clear()
    for step in talk.steps:
        sweep = step.sweep(device_kind)
        if sweep is not None and sweep not in _asked() and (run_id := shell.submit(sweep, fresh=True)):
            _asked()[sweep] = run_id
            shell.lab().store.label(run_id, f"{NAME}: {step.headline}", "")
    shared_runs.claim("stage", _asked().values(), shared_runs.REHEARSAL)


def stop() -> None:
    for run_id in _asked().values():
        shell.lab().cancel(run_id)


def run_of(sweep: Sweep) -> Run | None:
    run_id = _asked().get(sweep)
    return shell.lab().snapshot(run_id).run if run_id else None


def active() -> bool:
    return any((run := run_of(sweep)) is not None and run.active for sweep in list(_asked()))


def kept(sweep: Sweep, device_key: str) -> Run | None:
    """What is shown where a live result is late: the rehearsal's, else what was measured here before."""
    run = run_of(sweep)
    if run is not None and run.state == "done" and any(m.ok for m in run.measurements):
        return run
    return shell.lab().store.find_answer(sweep, device_key)


def mark(run: Run) -> str:
    """Where a kept result comes from: "from the rehearsal, 30 November 2026, 11:00 …"."""
    whence = "from the rehearsal" if _rehearsed(run.id) else "measured before"
    return f"{whence}, {local(run.created)}"


def _rehearsed(run_id: str) -> bool:
    named = (entry.name for entry in shell.lab().store.entries() if entry.run.id == run_id)  # listed once a change
    return run_id in _asked().values() or next(named, "").startswith(NAME)


def rows(talk: Talk, device_kind: str, recorded: Mapping[str, Run]) -> list[rehearsal.Row]:
    """A row for each step."""
    found = []
    for step in talk.steps:
        sweep = step.sweep(device_kind)
        refusal = shell.admitted(sweep)[1] if sweep else ""
        run = run_of(sweep) if sweep else None
        found.append(rehearsal.row(step, device_kind, run, recorded.get(step.recorded), refusal))
    return found


def section(talk: Talk, device_kind: str, recorded: Mapping[str, Run]) -> None:
    """What was found in a sentence, and a line for each step, with what to expect of it."""
    found = rows(talk, device_kind, recorded)
    headline.spoken(rehearsal.sentence(found), lines=1)
    cells = {
        "Step": [talk.place(number) for number in range(1, len(found) + 1)],
        "Headline": [escape(row.headline) for row in found],
        "": [f":{BADGES[row.verdict]}-badge[{row.verdict}]" for row in found],
        "What to expect": [escape(row.words) for row in found],
    }
    st.table(cells, border="horizontal", hide_index=True, alt="Every step of the talk, and what the rehearsal found")
