"""How close to the true answer is each path, does it give the same bits twice, and where does it break?

Read from top to bottom: what the visitor asks for (the form, the buttons), what this tab does about it (submit, cancel),
what is shown: one finding in words, the error against sequence length, every answer with its verdict, then repeats,
numerical edges and what is supported. Each question is a run of its own (a sweep with a task); exactness is one for each
dtype. `answers` and `section` redraw themselves while their runs are active; `follow` reruns the page when that changes.
"""

import streamlit as st

from attnlab import edges, exactness_figure, units, verdicts
from attnlab.problem import DTYPE_BYTES
from attnlab.run import Run
from attnlab.sweep import SHORTEST
from attnlab.ui import chart, exactness_form, head, headline, link, shared_runs, shell, text, verdict_tables
from attnlab.ui.parts import part

EVERY_S = 0.5
CHART_HEIGHT = "max(340px, 50vh)"
MEASURE_HERE = "Measure on this machine"
OUTPUTS = ("O", "dQ", "dK", "dV")
SECTIONS = ("determinism", "edges", "support")

shell.guard()
lab = shell.lab()
state = st.session_state
looks = state.setdefault("exactness_looks", {})  # task → ids of the runs that this tab shows, one for each dtype


def press(task: str) -> None:
    state["exactness_request"] = task


def try_edges() -> None:
    if not looks.get("edges"):
        press("edges")


def live_runs(task: str) -> list[Run]:
    runs = [lab.snapshot(run_id).run for run_id in looks.get(task, ())]
    return [run for run in runs if run is not None]


# The form.

worker = lab.snapshot().worker
recorded, refused = shell.recorded_looks()
show = head.choose(
    worker,
    here=MEASURE_HERE,
    recorded=recorded,
    refused=refused,
    address="show",
    key="x_show",
    say=lambda name: f"Recorded on {name}",
)
replaying = show in recorded

with st.sidebar:
    check_slot, stop_slot = st.columns([2, 1])
    form = exactness_form.form(worker, [run.sweep for run in recorded.get(show, ())], tuple(recorded))
    if form.refusal:
        st.error(text.escape(form.refusal))
    if form.link_note:
        st.warning(text.escape(form.link_note))

can_run = bool(form.sweeps) and worker.device is not None and not replaying


def placeholders(task: str, seq: int) -> list[Run]:
    """Runs without a measurement, in the shape of what a button would ask for."""
    kind = worker.device.kind if worker.device else "cpu"
    sweeps = form.looks(task, seq) or (verdicts.usual(kind, task),)
    return [Run(id="", sweep=sweep, state="done", created="") for sweep in sweeps]


def shown(task: str, seq: int = SHORTEST) -> list[Run]:
    """What stands on the page for a task: recorded runs, this tab's, or empty ones; never none."""
    if replaying:
        newest: dict[str, Run] = {}
        for run in recorded[show]:
            if run.sweep.task == task:
                newest.setdefault(run.sweep.problem.dtype, run)
        runs = [newest[dtype] for dtype in DTYPE_BYTES if dtype in newest]
        runs = runs if task == "exactness" else runs[:1]
    else:
        runs = live_runs(task)
    return runs or placeholders(task, seq)


def sequences(runs: list[Run]) -> list[int]:
    return sorted({seq for run in runs for seq in run.sweep.seqs})


def picked(runs: list[Run]) -> int:
    """The sequence length of the tables: chosen last, or in the link, or the longest."""
    here = sequences(runs)
    return link.adopt("at", {str(seq): seq for seq in here}, here[-1])


# What this tab does about it.

picked_seq = picked(shown("exactness"))
request = state.get("exactness_request")
with shared_runs.changing():
    if request == "stop":
        shared_runs.stop(run_id for ids in looks.values() for run_id in ids)
    elif request and can_run:
        wanted, before = form.looks(request, picked_seq), live_runs(request)
        anew = [run.sweep for run in before] == list(wanted) and not any(run.active for run in before)
        shared_runs.leave(run.id for run in before if run.active and run.sweep not in wanted)
        looks[request] = ()
        for sweep in wanted:  # each is noted at once: a run that is cut short leaves none to nobody
            if run_id := shell.submit(sweep, fresh=anew):
                looks[request] += (run_id,)
    state.pop("exactness_request", None)
    shared_runs.claim("exactness", (run_id for ids in looks.values() for run_id in ids))

activity = {task: any(run.active for run in live_runs(task)) for task in ("exactness", *SECTIONS)}
check_slot.button(
    "Check",
    key="x_check",
    type="primary",
    shortcut="Ctrl+Enter",
    width="stretch",
    on_click=press,
    args=("exactness",),
    disabled=not can_run or activity["exactness"],
    help=form.refusal
    or "Compare every path with float64. What this machine has an answer for is shown at once; pressed "
    "again, it is measured anew.",
)
stop_slot.button(
    "Stop", key="x_stop", on_click=press, args=("stop",), disabled=not any(activity.values()), width="stretch"
)


# What is shown.


def situation() -> tuple[bool, ...]:
    return tuple(any(run.active for run in live_runs(task)) for task in looks)


follow = head.watch(worker, situation)


def standing(runs: list[Run]) -> str:
    """What happens, or what was found, in one line of markdown."""
    active = next((run for run in runs if run.state == "running"), next((run for run in runs if run.active), None))
    if active is not None:
        what = f"{active.sweep.task} in {active.sweep.problem.dtype}"
        points = f"{len(active.measurements)} of {active.sweep.point_count} points"
        return f":blue-badge[Checking] {what}: {points} · {active.seconds:.1f} s {text.escape(active.activity)}"
    if not runs[0].id:
        return f":gray-badge[Not measured] {'Press the button.' if can_run else ''}"
    mark = f":violet-badge[{text.escape(runs[0].mark)}] " if runs[0].mark else ""
    ended = next((run for run in runs if run.state != "done"), None)
    if verdicts.failures(runs) or verdicts.controls_missed(runs):
        badge = ":red-badge[✗ FAIL]"
    elif ended is not None:
        badge = f":orange-badge[{ended.state.capitalize()}] {text.escape(ended.reason)}."
    elif verdicts.troubles(runs) or not verdicts.count(runs):
        badge = ":orange-badge[Incomplete]"
    else:
        badge = ":green-badge[✓ PASS]"
    return f"{mark}{badge} {text.escape(verdicts.tally(runs))}{differs(runs)}"


def differs(runs: list[Run]) -> str:
    """That the form asks for something else than what is shown, where it does."""
    asked = form.looks(runs[0].sweep.task, runs[0].sweep.seqs[-1])
    other = asked and not replaying and [run.sweep for run in runs] != list(asked)
    return f" :orange[The form differs from what is shown: {text.escape(verdicts.shape(runs[0]))}.]" if other else ""


def first_line(runs: list[Run]) -> str:
    """`standing`, unless something is wrong with what was asked for."""
    if form.refusal and not replaying:
        return f":red-badge[Cannot check] :red[{text.escape(form.refusal)}]"
    if form.link_note and not replaying:
        return f":orange-badge[Link] :orange[{text.escape(form.link_note)}]"
    return standing(runs)


@part(run_every=EVERY_S if activity["exactness"] and not replaying else None)
def answers() -> None:
    runs = shown("exactness")
    said = verdicts.exactness(runs) or "Flash is exact attention, not an approximation. Press Check to measure it here."
    headline.spoken(verdicts.with_mark(said, runs[0]), lines=3)
    st.markdown(f":small[{text.escape(verdicts.GENERAL)}]")
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        line = first_line(runs)
        whole = form.refusal or form.link_note or (verdicts.tally(runs) if runs[0].measurements else "")
        st.markdown(line, help=text.escape(whole) or None, width="stretch", wrap=False)  # it may not fit
        output = st.segmented_control(
            "Output", OUTPUTS, default="O", required=True, key="x_output", label_visibility="collapsed"
        )
        measure = st.segmented_control(
            "Error",
            list(exactness_figure.MEASURES),
            default="relative",
            required=True,
            key="x_measure",
            format_func={"relative": "Relative", "max_abs": "Max abs"}.get,
            label_visibility="collapsed",
        )
    alt = f"Error of {output} against sequence length, by path and dtype"
    chart.plotly_chart(exactness_figure.figure(runs, output, measure), key="x_error", height=CHART_HEIGHT, alt=alt)
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.markdown(f"**Every answer.** {text.escape(verdicts.RULE)}{marked(runs)}", width="stretch")
        at = picker(runs)
    verdict_tables.exactness(runs, at)


def picker(runs: list[Run]) -> int:
    here, at_first = sequences(runs), picked(runs)
    chosen = st.selectbox(
        "At sequence",
        here,
        here.index(at_first),
        key=f"x_at of {here}",  # one widget a list: the browser keeps showing the old list's choice otherwise
        format_func=lambda seq: f"At sequence {units.sequence(seq)}",
        label_visibility="collapsed",
        width=210,
    )
    if chosen != at_first:
        link.publish("at", chosen, str(chosen))
    return chosen


def marked(runs: list[Run]) -> str:
    return f" :violet-badge[{text.escape(runs[0].mark)}]" if runs[0].mark else ""


def section(task: str, edge: str = "") -> None:
    """One question below the first: what was found in a line, then its table."""
    run = shown(task, picked_seq)[0]
    st.markdown(standing([run]))
    if task == "determinism":
        st.markdown(text.escape(verdicts.determinism(run)))
        verdict_tables.determinism(run)
    elif task == "edges":
        verdict_tables.edge(run, edge)
    else:
        verdict_tables.support(run)


def draw(task: str, *more: str) -> None:
    part(run_every=EVERY_S if activity[task] and not replaying else None)(section)(task, *more)


def heading(title: str, label: str, task: str, help: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.subheader(title, width="stretch", anchor=False)
        st.button(
            label, key=f"x_{task}", on_click=press, args=(task,), disabled=not can_run or activity[task], help=help
        )


answers()

heading(
    "The same bits twice?",
    "Repeat 10 times",
    "determinism",
    f"Forward and backward at sequence {units.sequence(picked_seq)}, in the default and in deterministic mode.",
)
draw("determinism")

heading("Numerical edges", "Try the edges", "edges", "Small inputs on which attention goes wrong in known ways.")
edge = st.segmented_control(
    "Edge",
    list(edges.WHY),
    default=next(iter(edges.WHY)),
    required=True,
    key="x_edge",
    on_change=try_edges,
    format_func=str.capitalize,
    label_visibility="collapsed",
)
st.markdown(f"**Why it goes wrong:** {text.escape(edges.WHY[edge])}.")
draw("edges", edge)

heading(
    "What each path supports",
    "Try every feature",
    "support",
    "Each feature is launched on each path, and its answer held to float64.",
)
draw("support")
follow()
