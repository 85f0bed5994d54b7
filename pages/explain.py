"""Why it is fast: the trip through memory, tiles, online softmax, the code, the layout, for the shape in the sidebar.

Read from top to bottom: what is shown and for which problem (the form), what this tab does about it (submit, cancel), the
part that was chosen. All but the measured numbers is arithmetic on the problem. `chapter` redraws itself while a run is
active; `follow` reruns the page when that changes.
"""

import streamlit as st

from attnlab import trip
from attnlab.problem import ProblemError
from attnlab.run import Run
from attnlab.ui import (
    explain_code,
    explain_form,
    explain_layout,
    explain_softmax,
    explain_trip,
    head,
    headline,
    shared_runs,
    shell,
    text,
    tiles,
)
from attnlab.ui.parts import part

EVERY_S = 0.5
MEASURE_HERE = "Measure on this machine"

shell.guard()
lab = shell.lab()
state = st.session_state
runs = state.setdefault("explain_runs", {})  # problem → id of its run


def press(button: str) -> None:
    state["explain_request"] = button


# The form.

worker = lab.snapshot().worker
recorded, refused = shell.recorded_anatomies()
explain_form.fill(worker)
show = head.choose(
    worker,
    here=MEASURE_HERE,
    recorded=recorded,
    refused=refused,
    address="w_show",
    key="w_show_box",
    say=lambda name: f"R{recorded[name].mark.rpartition(',')[0][1:]} ({name})",
)
replay = recorded.get(show)

with st.container(horizontal=True, vertical_alignment="center", wrap=False):
    section = explain_form.section()
    standing_slot = st.container(width="stretch")
with st.sidebar:
    measure_slot, stop_slot = st.columns([5, 2], gap="xsmall")
    counters_slot = st.container()
    form = explain_form.form(worker, replay.sweep.at(replay.sweep.seqs[-1]) if replay else None)
    if form.refusal:
        st.error(text.escape(form.refusal))
    note = "; ".join(filter(None, [form.note, explain_form.unknown_show(tuple(recorded))]))
    if note:
        st.warning(text.escape(note))

# What this tab does about it.

try:
    sweeps, refusal = {task: trip.sweep(form.problem, task) for task in trip.TASKS if form.problem}, form.refusal
except ProblemError as error:
    sweeps, refusal = {}, str(error)
can_run = bool(sweeps) and worker.device is not None and replay is None


def shown() -> Run | None:
    """The recorded run, else this tab's for the problem of the form, else none."""
    if replay or form.problem not in runs:
        return replay
    return lab.snapshot(runs[form.problem]).run


def active() -> bool:
    return any((run := lab.snapshot(run_id).run) is not None and run.active for run_id in runs.values())


request = state.get("explain_request")
with shared_runs.changing():
    if request == "stop":
        shared_runs.stop(runs.values())
    elif request in sweeps and can_run:
        before = shown()
        again = before is not None and not before.active and before.sweep.task == request
        if run_id := shell.submit(sweeps[request], fresh=again):
            runs[form.problem] = run_id
    state.pop("explain_request", None)
    shared_runs.claim("explain", runs.values())
drawn_active = active()
measure_slot.button(
    "Measure the kernels",
    key="w_measure",
    type="primary",
    width="stretch",
    on_click=press,
    args=(trip.ANATOMY,),
    disabled=not can_run or drawn_active,
    help=refusal or "Time each of standard attention's operations, and flash. Pressed again, it is measured anew.",
)
counters_slot.button(
    "Read the DRAM counters",
    key="w_counters",
    width="stretch",
    on_click=press,
    args=(trip.COUNTERS,),
    disabled=not can_run or drawn_active or worker.device.kind != "cuda",
    help="Measure, and read the bytes that the hardware counted (NVIDIA Nsight Compute, `ncu`, on an NVIDIA GPU; some "
    "seconds more).",
)
stop_slot.button("Stop", key="w_stop", width="stretch", on_click=press, args=("stop",), disabled=not drawn_active)


# What is shown.


follow = head.watch(worker, active)


def standing(run: Run | None) -> str:
    """What happens, or what was measured, in one line of markdown."""
    if note and replay is None:
        return f":orange-badge[Link] :orange[{text.escape(note)}]"
    if section not in explain_form.MEASURED:
        return ""
    if run is None:
        return ":gray-badge[Not measured here]"
    if run.active:
        return f":blue-badge[Measuring] {run.seconds:.1f} s {text.escape(run.activity)}"
    if run.mark:
        return f":violet-badge[{text.escape(run.mark)}]"
    if run.state != "done":
        return f":orange-badge[{run.state.capitalize()}] {text.escape(run.reason)}"
    lost = [f"{m.path}: {m.reason or m.status}" for m in run.measurements if not m.findings]
    if lost:
        return f":orange-badge[Incomplete] {text.escape('; '.join(lost))}"
    return f":green-badge[Measured] {text.local(run.created)}"


@part(run_every=EVERY_S if drawn_active else None)
def chapter() -> None:
    run = shown()
    device = run.device if run and run.device else worker.device
    if section == "Online softmax":
        explain_softmax.section()
        return
    if section == "The code":
        explain_code.section()
        return
    if form.problem is None:
        headline.spoken("This shape cannot be.")
        st.error(text.escape(form.refusal))
        return
    if section == "The trip":
        explain_trip.section(form.problem, run, device)
    elif section == "Layout":
        explain_layout.section(form.problem, run, device)
    else:
        tiles.section(form.tiling, device)


@part(run_every=EVERY_S if drawn_active else None)
def standing_now() -> None:
    st.markdown(standing(shown()), wrap=False)


with standing_slot:
    standing_now()
chapter()
follow()
