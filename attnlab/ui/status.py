"""One line each: what is measured on, what happens right now, how old an answer is."""

from __future__ import annotations

import functools

from attnlab import nvml, units
from attnlab.run import Run, Snapshot, WorkerState
from attnlab.ui.controls import Form
from attnlab.ui.text import escape, local


def device_line(worker: WorkerState, *, trouble: str, offer: bool) -> str:
    """What this machine measures on, as markdown; on a CPU the banner that says so.

    `trouble`, where there is any, comes before the software: a history that cannot be kept, a recording that cannot be
    read. `offer`: there are recorded GPU runs in the list to the right.
    """
    device = worker.device
    if worker.state == "failed":
        return f":red-badge[The worker failed] {escape(worker.text)}"
    beside = f" :orange-badge[Note] :orange[{escape(trouble)}]" if trouble else ""
    if device is None:
        return f":gray-badge[Starting] {escape(worker.text or 'the worker looks for a device')}{beside}"
    software = [f"torch {device.torch}"] * bool(device.torch) + [f"CUDA {device.cuda}"] * bool(device.cuda)
    here = beside or escape("".join(f" · {part}" for part in software))
    if device.kind == "cpu":
        offered = " A GPU run is in the list → " if offer else " "
        return f":orange-badge[CPU] **This is the CPU.**{offered}{escape(device.name)}{here}"
    return f":green-badge[GPU] {escape(device.name)}{here}"


@functools.cache
def _gpu_seen() -> bool:
    return nvml.gpu_visible()


def lab_line(worker: WorkerState) -> str:
    """What the lab will use and why, in one sentence of markdown; the Environment page opens with the same."""
    from attnlab.doctor import summary  # what the first paint need not wait for

    on_cpu = worker.device is not None and worker.device.kind == "cpu"
    return escape(summary.lab_line(worker, gpu_seen=on_cpu and _gpu_seen()))


def line(snapshot: Snapshot, run: Run, form: Form, full: str = "") -> str:
    """What happens right now, in one line of markdown; `full`: why what was asked for does not even wait."""
    if form.refusal:
        said = f":red-badge[Cannot run] :red[{escape(form.refusal)}]"
    elif full:
        said = f":orange-badge[Full] :orange[{escape(full)}]"
    elif form.link_note:
        said = f":orange-badge[Link] :orange[{escape(form.link_note)}]"
    elif not run.id:
        said = "Waiting for the worker" if snapshot.worker.device is None else "Ready"
    elif run.recorded:
        said = f":violet-badge[{escape(run.mark)}] {units.shape(run.sweep.problem)}"
    elif run.active:
        head = "Measuring" if run.state == "running" else queued(snapshot, run)
        if snapshot.worker.state in ("starting", "restarting") and not run.activity:  # a running one says it itself
            waits = snapshot.worker.text or f"{snapshot.worker.state} the worker"
            head = escape(waits[0].upper() + waits[1:])
        said = f"{head}: {escape(units.progress(run))}"
    elif run.state == "done":
        said = f"Measured {local(run.created)} in {run.seconds:.1f} s"
        if run.reason:
            said += f" · :orange[{escape(run.reason)}]"
    else:
        why = f": {escape(run.reason)}" if run.reason else ""
        said = f"{run.state.capitalize()}{why} · started {local(run.created)}"
    if run.id and not run.recorded and form.sweep is not None and run.sweep != form.sweep:
        said += f" · :orange[the form differs from the run shown: {units.shape(run.sweep.problem)}]"
    return said


def queued(snapshot: Snapshot, run: Run) -> str:
    """What a run waits for: "Queued, 2 runs ahead"; the one that is being measured counts."""
    place = snapshot.queue.index(run.id) if run.id in snapshot.queue else 0
    ahead = place + (snapshot.worker.state == "busy")
    return f"Queued, {ahead} run{'s' if ahead > 1 else ''} ahead" if ahead else "Queued"


def recording(name: str, run: Run) -> str:
    """What a recorded run is called in the list: "Replay h200 · NVIDIA H200, 2026-11-30"; `name` is its file's, and is
    what a link says."""
    return f"Replay {name} · {run.mark.removeprefix('recorded on ')}"
