"""A talk on a stage: one headline, one sentence, one chart, the few sliders, walked with the arrow keys.

Read from top to bottom: which step (the address, the keys), what it shows (live, recorded, arithmetic), what this tab does
about it (submit, cancel), what stands on the stage. A step that measures asks for its run anew when it is entered; a kept
result waits beside it for when the live one is late (attnlab.rehearsal). `stage` redraws itself while a run is active;
`pulse` reruns the page when that changes. Step 0 is the rehearsal.
"""

import time
from dataclasses import dataclass

import streamlit as st

from attnlab import checked, rehearsal, talk, units
from attnlab.presets import PRESETS
from attnlab.run import Run, WorkerState
from attnlab.sweep import Sweep
from attnlab.ui import keys, rehearse, shared_runs, shell, stage_form, stage_parts, text, viewers
from attnlab.ui.parts import part, timer

EVERY_S = 0.25
REHEARSAL = 0
REPLAY_OF_PRESET = "h200-{}"  # the recording of a preset, where nothing is measured


@dataclass
class Visit:
    """A step that was asked for: its run, when by time.monotonic(), what is kept for it, whether the live one was late."""

    run_id: str
    asked_s: float
    kept: Run | None
    late: bool = False


shell.guard()
lab = shell.lab()
state = st.session_state
visits: dict[Sweep, Visit] = state.setdefault("stage_visits", {})

# Which step.

script, trouble = talk.chosen()
last = len(script.steps)
legal = f"whole numbers from 0, the rehearsal, to {last}"


def step_of_address() -> tuple[int, str]:
    said = st.query_params.get("step", "1")
    if said.isascii() and said.isdigit() and len(said) < 4 and int(said) <= last:
        return int(said), ""
    return 1, f"step is {checked.shown(said)} in the link, legal: {legal}"


def ask(action: str) -> None:
    state["stage_request"] = action


def enter(number: int) -> None:
    """What a step starts with."""
    state["stage_step"], state["stage_preset"], state["stage_shown"], state["stage_scale"] = number, None, None, None
    state["stage_entered"] = True
    st.query_params["step"] = str(number)


if "stage_step" not in state or not 0 <= state["stage_step"] <= last:
    number, state["stage_fault"] = step_of_address()
    enter(number)
request = state.pop("stage_request", None)
for action in [*keys.pressed(), *([request] if request else [])]:
    number = state["stage_step"]
    if action in ("next", "back", "first"):
        state["stage_fault"] = ""
        to = {"next": min(last, number + 1), "back": max(1, number - 1), "first": 1}[action]
        if to != number:
            enter(to)
    elif action == "rehearse":
        enter(REHEARSAL)
    elif action == "leave":
        del state["stage_step"]
        st.switch_page(shell.PAGES[0][0], query_params={})
    elif action == "preset":
        names = list(PRESETS)
        now = state["stage_preset"]
        state["stage_preset"] = names[(names.index(now) + 1) % len(names)] if now else names[0]
        state["stage_shown"] = None
    elif action == "reveal":
        state["stage_reveal"] = True
    elif action == "scale":
        state["stage_turn"] = True
    elif action in ("run", "rehearse again"):
        state["stage_run"] = action
number = state["stage_step"]
step = script.steps[number - 1] if number else None
st.query_params["step"] = str(number)

# What it shows.

snapshot = lab.snapshot()
worker = snapshot.worker
device = worker.device
recorded = {**shell.recordings()[0], **shell.recorded_runs()[0]}
preset = state["stage_preset"]
swept = step is not None and step.kind in talk.SWEPT
wanted, replayed = None, None  # a sweep to measure, or a run to replay
if step is not None and device is not None:
    wanted = step.sweep(device.kind)
    if swept and preset:
        replayed = recorded.get(REPLAY_OF_PRESET.format(preset)) if device.kind == "cpu" else None
        wanted = None if replayed else PRESETS[preset].sweep()
    elif step.kind == "yours" and st.query_params.get("replay") in recorded:
        wanted, replayed = None, recorded[st.query_params["replay"]]
    elif step.kind == "yours" and wanted is not None:
        if "stage_yours" not in state:
            state["stage_yours"], fault = stage_form.from_address(worker, wanted)
            state["stage_fault"] = "; ".join(filter(None, [state["stage_fault"], fault]))
        wanted = state["stage_yours"]
    elif wanted is None and step.recorded:
        replayed = recorded.get(step.recorded)

with st.container(gap="xsmall"):
    top, sliders, bottom = st.container(gap="xsmall"), st.container(), st.container()
    keys.listen()  # early, for it also tells the browser what was heard
on_paper = step is not None and step.kind in talk.ON_PAPER
base = (replayed.sweep if replayed else wanted) if swept else None
with sliders:
    shape, fixed = base or (step and step.gpu), not on_paper and (base is None or replayed is not None)
    if step and step.kind == talk.EXACTNESS and device is not None:
        here = wanted in visits or rehearse.kept(wanted, device.key) is not None
        shape = recorded[step.recorded].sweep if not here and step.recorded in recorded else wanted
    form = stage_form.form(shape, disabled=fixed) if shape else stage_form.Form(None)
sweep, refusal = (form.sweep, form.refusal) if on_paper or (swept and wanted is not None) else (wanted, "")
problem = sweep.at(sweep.seqs[-1]) if on_paper and sweep is not None else None
if on_paper:
    sweep = None  # nothing is measured
if sweep is not None:
    sweep, refused = shell.admitted(sweep)
    refusal = refusal or refused
if step is not None and step.kind == "yours" and sweep is not None:
    st.query_params.update(stage_form.in_address(sweep))

# What this tab does about it.

asked = state.get("stage_run")
with shared_runs.changing():
    if number == REHEARSAL and asked and device is not None:
        rehearse.begin(script, device.kind)
    elif sweep is not None and device is not None:
        visit = visits.get(sweep)
        before = lab.snapshot(visit.run_id).run if visit else None
        gone = before is not None and before.state in ("cancelled", "failed") and state["stage_entered"]
        if asked or (swept and (visit is None or gone)):
            shared_runs.leave(other.run_id for other in visits.values())
            kept = rehearse.kept(sweep, device.key)
            if run_id := shell.submit(sweep, fresh=True):
                visits[sweep] = Visit(run_id, time.monotonic(), kept)
        state["stage_entered"] = False
    state.pop("stage_run", None)
    shared_runs.claim("stage", (visit.run_id for visit in visits.values()))


def live_and_shown() -> tuple[Run | None, Run | None, bool]:
    """(this tab's run, the run to show, whether that is the kept one)."""
    if replayed is not None:
        return None, replayed, False
    if sweep is None or device is None:
        return None, None, False
    visit = visits.get(sweep)
    if visit is None:
        kept = rehearse.kept(sweep, device.key)
        return None, kept, kept is not None
    live = lab.snapshot(visit.run_id).run
    visit.late = visit.late or rehearsal.late(live, time.monotonic() - visit.asked_s)
    return (live, *rehearsal.on_stage(live, visit.kept, visit.late))


def at_work() -> bool:
    live = live_and_shown()[0]
    return (live is not None and live.active) or (number == REHEARSAL and rehearse.active())


def situation(worker: WorkerState) -> tuple:
    """What a run of the whole page depends on. When it changes, the page is out of date."""
    return worker.device.key if worker.device else None, worker.state == "failed", lab.store.problem, at_work()


drawn, pace = situation(worker), viewers.pace()  # the worker as it was above, or a change would go unnoticed


@timer(run_every=pace)
def pulse() -> None:
    slower = viewers.pace() != pace and at_work()  # while nothing moves an audience may come
    if not state.pop("stage_page_runs", False) and (slower or situation(lab.snapshot().worker) != drawn):
        st.rerun()


def standing(live: Run | None, run: Run | None, is_kept: bool) -> str:
    """What happens, or where the numbers come from, in one line of markdown."""
    notes = "; ".join(filter(None, [trouble, state["stage_fault"]]))
    if notes:
        return f":orange-badge[Note] :orange[{text.escape(notes)}]"
    if refusal:
        return f":red-badge[Cannot run] :red[{text.escape(refusal)}]"
    if worker.state == "failed":
        return f":red-badge[The worker failed] {text.escape(worker.text)}"
    title = f"{text.escape(PRESETS[preset].title)} · " if preset and swept else ""
    if run is None:
        return f"{title}{'Queued' if live else ''}"
    shape = text.escape(units.shape(run.sweep.problem))
    if run.mark:
        return f":violet-badge[{text.escape(run.mark)}] {title}{shape}"
    if is_kept:
        now = f"live: {text.escape(units.progress(live))}" if live is not None and live.active else "not measured live"
        return f":orange-badge[{text.escape(rehearse.mark(run))}] {title}{now}"
    if run.active:
        return f":blue-badge[Measuring] {title}{text.escape(units.progress(run))}"
    said = f"measured in {run.seconds:.1f} s" if run.state == "done" else f"{run.state}: {text.escape(run.reason)}"
    return f":green-badge[Live] {title}{shape} · {said}"


def revealed(run: Run) -> list[str]:
    """The paths that are drawn, in the order of the step; P adds one, and after the last begins again with the first."""
    first = step.gpu.paths if step.gpu else run.sweep.paths[:2]
    order = stage_parts.in_order(run, first)
    at_first = min(step.shown or len([path for path in order if path in first]), len(order))
    return order[: reveal(at_first, len(order))]


def reveal(at_first: int, count: int) -> int:
    shown = min(state["stage_shown"] or at_first, count)
    if state.pop("stage_reveal", False):
        shown = shown % count + 1
        state["stage_shown"] = shown
    return shown


@part(run_every=EVERY_S * pace if drawn[-1] else None)
def stage() -> None:
    live, run, is_kept = live_and_shown()
    with st.container(gap=None, key="stage_top"):
        if step is None:
            stage_parts.title(script.title)
            return rehearse.section(script, device.kind if device else "cpu", recorded)
        stage_parts.title(step.headline)
        if on_paper and problem is None:
            stage_parts.nothing(refusal)
        elif step.kind == "trip":
            stage_parts.moved(problem)
        elif step.kind == "tiles":
            stage_parts.walk(problem, device)
        elif step.kind == "softmax":
            stage_parts.softmax(reveal(step.shown or stage_parts.BLOCKS, stage_parts.BLOCKS))
        else:
            run = run or (recorded.get(step.recorded) if step.kind == talk.EXACTNESS else None)
            measured_part(live, run)
    state["stage_reveal"] = False
    with st.container(horizontal=True, vertical_alignment="center", wrap=False, gap="small", key="stage_line"):
        st.markdown(f"**{script.place(number)}**", width="content", wrap=False)
        st.markdown(standing(live, run, is_kept), width="stretch", wrap=False)
    if not state.get("stage_page_runs"):
        viewers.let_it_go()


def measured_part(live: Run | None, run: Run | None) -> None:
    if run is None and sweep is not None and (live is not None or device is not None) and not refusal:
        run = Run(id="", sweep=sweep, state="queued", created="", device=device)
    if run is None:
        stage_parts.nothing(refusal or worker.text or "The worker looks for a device.")
    elif step.kind == talk.EXACTNESS:
        stage_parts.exactness(run, revealed(run))
    elif step.kind == "roofline":
        stage_parts.roofline(run, revealed(run))
    else:
        scale = state["stage_scale"] or step.scale
        if state.pop("stage_turn", False):
            scale = state["stage_scale"] = "linear" if scale == "log" else "log"
        stage_parts.sweep(step, run, scale, revealed(run))


state["stage_page_runs"] = True
with top:
    stage()
with bottom:
    if number == REHEARSAL:
        st.button(
            "Rehearse",
            key="rehearse",
            type="primary",
            on_click=ask,
            args=("rehearse again",),
            disabled=device is None or rehearse.active(),
            help="Measures every step of the talk once, one after the other, and keeps the results for the stage.",
        )
pulse()
