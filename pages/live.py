"""The live lab: sliders → sweep → curves.

Read from top to bottom: what the visitor asks for (the form), what this tab does about it (submit, cancel, queue), what
is shown (one run, live or recorded). Fragments keep it alive: `pulse` looks once a second whether the whole page is out
of date; `results` (the charts), `rates` and `closer` (the second row) and `details` (the table) redraw themselves while a
run is active, and a click on a point runs `closer` alone. Nothing appears or vanishes meanwhile, so nothing jumps.
"""

import time
from dataclasses import replace

import streamlit as st

from attnlab import figures
from attnlab.command_line import command_line
from attnlab.run import Run, Snapshot
from attnlab.sweep import default_sweep
from attnlab.ui import (
    chart,
    controls,
    headline,
    link,
    onepoint,
    points,
    rungs,
    shared_runs,
    shell,
    stage_form,
    status,
    text,
    viewers,
)
from attnlab.ui.parts import part, timer

CHARTS_EVERY_S = 0.25
FIRST_POINT_WAIT_S = 0.25  # a warm worker is quicker than the first tick after a change
POINT_WAIT_S = 0.15  # of that the charts wait on the server: a point is drawn when it comes, not a tick later
ROW_EVERY_S = 2.0  # the second row, and
TABLE_EVERY_S = 2.0  # the table: a table costs more than three charts, and nobody reads it while it moves
CHART_HEIGHT = "max(320px, 44vh)"  # below the menu, and on the first screen of a small projector
WORDS_PX = 272  # what the curves say, in four sentences
SWITCH_PX = 56  # below the fourth chart
MEASURE_HERE = "Measure on this machine"

shell.guard()
lab = shell.lab()
state = st.session_state
mine = state.setdefault(shared_runs.MINE, shared_runs.Mine())
state.setdefault("drawn_run", None)  # what the charts show, and
state.setdefault("drawn_at", 0.0)  # since when, by time.monotonic
painted = state.setdefault("painted", False)  # what is heavy comes with this tab's second run


def press(button: str) -> None:
    mine.request = button


def look() -> Snapshot:
    """The lab as this tab sees it: with its own run, or none."""
    snapshot = lab.snapshot(mine.run_id)
    return snapshot if mine.run_id else replace(snapshot, run=None)


snapshot = look()
worker = snapshot.worker
recorded, refused = shell.recorded_runs()

# The form.

link.check(recorded)
offered = link.adopt("replay", {name: name for name in recorded}, MEASURE_HERE)
with st.container(horizontal=True, vertical_alignment="center", wrap=False):
    trouble = "; ".join(filter(None, [lab.store.problem, *refused]))
    line = status.device_line(worker, trouble=trouble, offer=bool(recorded))
    st.markdown(line, help=text.escape(trouble) or None, width="stretch", wrap=False)
    names = [MEASURE_HERE, *recorded]
    replay = st.selectbox(
        "Show",
        names,
        names.index(offered),
        key="replay",
        format_func=lambda name: status.recording(name, recorded[name]) if name in recorded else name,
        label_visibility="collapsed",
        width=340,
    )
    to_stage = st.button(
        "Stage", key="to_stage", help="This shape before an audience: big type, one chart, arrow keys."
    )
replaying = replay in recorded
if replay != offered:
    link.publish("replay", replay, replay if replaying else None)

with st.sidebar:
    shell.choose_device(on_change=lambda: state.update({shared_runs.MINE: shared_runs.Mine()}))
    with st.container(gap="xsmall"):
        run_slot, stop_slot = st.columns([2, 1])
        live_slot, again_slot = st.columns([1, 2], vertical_alignment="center")
    live = live_slot.toggle("Live", True, key="live", bind="query-params")
    with st.container(gap="xsmall"):
        if replaying:
            form = controls.recorded_form(recorded[replay].sweep)
        else:
            controls.seed(worker, lab.snapshot().run)
            form = controls.form(worker, shell.public())
            if form.sweep is not None:
                admitted, refusal = shell.admitted(form.sweep)
                form = replace(form, sweep=admitted, refusal=refusal)
                if refusal:
                    st.error(text.escape(refusal))
    if painted:
        st.caption(status.lab_line(worker))

if (to_stage or st.query_params.get("stage", "").lower() == "true") and form.sweep is not None and worker.device:
    stage_form.open_stage(form.sweep, replay if replaying else "")

# What this tab does about it.

run = snapshot.run
active = run is not None and run.active
if mine.next_id and not active:
    mine.run_id, mine.next_id = mine.next_id, None
    run = look().run
    active = run is not None and run.active
request = mine.request  # answered further down: what cuts this run short must not lose it
can_run = form.sweep is not None and worker.device is not None and not replaying
wanted = can_run and (request in ("run", "again") or (live and (form.sweep != mine.asked or mine.refused)))
waits = wanted and active and not live  # the running sweep finishes first
goes_on = wanted and active and live and run.sweep == form.sweep
with shared_runs.changing():
    if request == "stop":
        shared_runs.stop((mine.next_id, mine.run_id))
        mine.next_id = None
    elif wanted and not goes_on:  # what waits would hold the device, with nobody to see or stop it
        shared_runs.leave((mine.next_id,) if waits else (mine.next_id, mine.run_id))
        mine.next_id = None
        told = mine.refused and not request and form.sweep == mine.asked
        run_id = shell.submit(form.sweep, fresh=request == "again", quietly=told)
        mine.refused = run_id is None
        if run_id and waits:
            mine.next_id = run_id
        elif run_id:
            mine.run_id = run_id
    if wanted:
        mine.asked = form.sweep
    mine.request = None
    shared_runs.claim("live", (mine.run_id, mine.next_id))
snapshot = replace(snapshot, run=look().run)  # the worker as the form above saw it, or a change would go unnoticed
active = snapshot.run is not None and snapshot.run.active

run_slot.button(
    "Queue" if active and not live else "Run",
    key="run",
    type="primary",
    shortcut="Ctrl+Enter",
    width="stretch",
    on_click=press,
    args=("run",),
    disabled=not can_run,
    help=form.refusal or None,
)
stop_slot.button("Stop", key="stop", on_click=press, args=("stop",), disabled=not active, width="stretch")
again_slot.button(
    "Measure again",
    key="again",
    width="stretch",
    on_click=press,
    args=("again",),
    disabled=not can_run or active,
    help="Measure this setting anew, even when this machine has an answer stored.",
)


# What is shown.


def shown(snapshot: Snapshot) -> Run:
    """The recorded run, else this tab's run, else an empty one."""
    if replaying:
        return recorded[replay]
    sweep = form.sweep or default_sweep(worker.device.kind if worker.device else "cpu")
    waits = (can_run and live) or worker.device is None
    return snapshot.run or Run(id="", sweep=sweep, state="queued" if waits else "done", created="")


def situation(snapshot: Snapshot) -> tuple:
    """What a run of the whole page depends on. When it changes, the page is out of date."""
    device, run = snapshot.worker.device, snapshot.run
    paths = tuple((path.name, path.state) for path in snapshot.worker.paths)
    failed, active = snapshot.worker.state == "failed", run.active if run else None
    room = len(snapshot.queue) if mine.refused else None  # asked again when it changes
    return (device.key if device else None, failed, paths, lab.store.problem, active, room)


def full() -> str:
    """Why what was asked for does not even wait; "" where it does."""
    again = "; yours is asked for again when one ends" if live else ""
    return f"as many runs wait as may{again}" if mine.refused else ""


drawn, pace = situation(snapshot), viewers.pace()


@timer(run_every=pace)
def pulse() -> None:
    # Not within the page's own run: what a run that is cut short has put into the session never reaches the address.
    slower = viewers.pace() != pace and active  # an audience that comes while nothing moves is no reason to draw anew
    if not state.pop("page_runs", False) and (slower or situation(look()) != drawn):
        st.rerun()


def draw_results() -> None:
    snapshot = look()
    state["drawn_run"] = snapshot.run
    run = shown(snapshot)
    with st.container(gap="small"):
        headline.sentence(run)
        with st.container(key="status", horizontal=True, vertical_alignment="center", wrap=False):
            whole = text.escape(form.refusal or form.link_note) or None  # a long one does not fit beside the choice
            st.markdown(status.line(snapshot, run, form, full()), help=whole, width="stretch", wrap=False)
            picked_seq = headline.picker(run.sweep.seqs)
        headline.figures(run, picked_seq)
    if painted and len(run.sweep.seqs) == 1:  # a ladder says more than a point on each of three charts
        rungs.table(run, run.sweep.seqs[0], () if replaying else snapshot.worker.paths)
    places = chart.slots(3, len(run.sweep.paths))
    with st.container(height=WORDS_PX, border=False, key="curves_say"):
        clock = headline.curves_say(run)
    drawn = {
        "latency": chart.once(figures.latency, run, clock),
        "memory": chart.once(figures.memory, run),
        "speedup": chart.once(figures.speedup, run, clock),
    }
    for slot, (name, figure) in zip(places, drawn.items(), strict=True):
        with slot:
            alt = f"{name.capitalize()} against sequence length"
            chart.plotly_chart(figure, key=name, height=CHART_HEIGHT, alt=alt)
    state["drawn_at"] = time.monotonic()


@part(run_every=CHARTS_EVERY_S if active and not replaying else None)
def results() -> None:
    ticks = not state.get("page_runs")
    if ticks and state["drawn_run"] is not None:
        viewers.keep_gap(state["drawn_at"])
        viewers.wait(POINT_WAIT_S * pace, lambda step_s: lab.wait_for_point(state["drawn_run"], step_s))
    with viewers.drawing():
        draw_results()
    if ticks:
        viewers.let_it_go()


@part(run_every=ROW_EVERY_S * pace if active and not replaying else None)
def rates() -> None:
    run = shown(look())
    with st.container(height=onepoint.PANEL_PX, border=False):
        if painted:
            slot = st.container()
            with st.container(horizontal=True, vertical_alignment="center", wrap=False):
                count = headline.count(run)
            with slot:
                alt = "Achieved TFLOP/s against sequence length"
                height = f"{onepoint.PANEL_PX - SWITCH_PX}px"
                figure = chart.once(figures.efficiency, run, count)
                chart.plotly_chart(figure, key="efficiency", height=height, alt=alt)


@part(run_every=ROW_EVERY_S * pace if active and not replaying else None)
def closer() -> None:
    if painted:
        onepoint.panel(shown(look()))


@part(run_every=TABLE_EVERY_S * pace if active and not replaying else None)
def details() -> None:
    snapshot = look()
    run = shown(snapshot)
    if painted and len(run.sweep.seqs) > 1:
        rungs.table(run, headline.picked(run.sweep.seqs), () if replaying else snapshot.worker.paths)
    st.caption(f"Every point of the run{' · ' + text.escape(run.mark) if run.mark else ''}")
    if not painted:  # the browser would fetch and run 2.5 MB for what follows before it shows a single slider
        return
    points.table(run)
    st.caption("The same run as a command line")
    st.code(command_line(run.sweep), language="bash")


state["page_runs"] = True
if wanted and not waits and painted and snapshot.run and pace == 1:  # a public server may have refused; many take turns
    lab.wait_for_point(snapshot.run, FIRST_POINT_WAIT_S)
results()
viewers.others_first()  # all see their charts before anybody sees what is below them
rates_slot, closer_slot = st.columns([1, 2], gap="small")
with rates_slot:
    rates()
with closer_slot:
    closer()
details()
state["painted"] = True
pulse()
