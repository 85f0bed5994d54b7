"""One line each: what is measured on, what happens right now, how old an answer is."""

from __future__ import annotations

from attnlab.run import Run, Snapshot, WorkerState
from attnlab.sweep import Sweep
from attnlab.ui.controls import Form
from attnlab.ui.text import escape, local


def device_line(worker: WorkerState, recorded: bool) -> str:
    """What this machine measures on, as markdown; on a CPU the banner that says so.

    `recorded` says whether there are recorded runs, which stand in the list to the right.
    """
    device = worker.device
    if worker.state == "failed":
        return f":red-badge[The worker failed] {escape(worker.text)}"
    if device is None:
        return f":gray-badge[Starting] {escape(worker.text or 'the worker looks for a device')}"
    software = [f"torch {device.torch}"] * bool(device.torch) + [f"CUDA {device.cuda}"] * bool(device.cuda)
    here = escape(" · ".join([device.name, *software]))
    if device.kind == "cpu":
        offer = "A GPU run is in the list → " if recorded else ""
        return f":orange-badge[CPU] **This is the CPU.** {offer}{here}"
    return f":green-badge[GPU] {here}"


def line(snapshot: Snapshot, run: Run, form: Form) -> str:
    """What happens right now, in one line of markdown."""
    if form.refusal:
        said = f":red-badge[Cannot run] :red[{escape(form.refusal)}]"
    elif form.link_note:
        said = f":orange-badge[Link] :orange[{escape(form.link_note)}]"
    elif not run.id:
        said = "Waiting for the worker" if snapshot.worker.device is None else "Ready"
    elif run.recorded:
        said = f":violet-badge[{escape(run.mark)}] {shape(run.sweep)}"
    elif run.active:
        total = len(run.sweep.seqs) * len(run.sweep.paths)
        phase = [f"{run.phase} pass"] * bool(run.phase)
        parts = [
            *phase,
            f"{len(run.measurements)} of {total} points",
            f"{run.seconds:.1f} s",
            *[run.activity] * bool(run.activity),
        ]
        starting = snapshot.worker.state in ("starting", "restarting")
        head = "Starting the worker" if starting else "Measuring" if run.state == "running" else "Queued"
        said = f"{head}: {escape(' · '.join(parts))}"
    elif run.state == "done":
        said = f"Measured {local(run.created)} in {run.seconds:.1f} s"
    else:
        said = (
            f"{run.state.capitalize()}{': ' + escape(run.reason) if run.reason else ''} · started {local(run.created)}"
        )
    if run.id and not run.recorded and form.sweep is not None and run.sweep != form.sweep:
        said += f" · :orange[the form differs from the run shown: {shape(run.sweep)}]"
    return said


def recording(run: Run) -> str:
    """What a recorded run is called in the list: "NVIDIA H200, 2026-11-30, batch 4, heads 32, dim 128, bfloat16"."""
    return f"{run.device.name if run.device else 'unknown device'}, {run.created[:10]}, {shape(run.sweep)}"


def shape(sweep: Sweep) -> str:
    """A sweep's shape as "batch 4, heads 32, dim 128, bfloat16, causal, forward+backward"."""
    p = sweep.problem
    heads = f"heads {p.heads}" if p.kv_heads == p.heads else f"heads {p.heads} over {p.kv_heads}"
    extras = ["causal"] * p.causal + [p.direction] * p.backward
    return ", ".join([f"batch {p.batch}", heads, f"dim {p.head_dim}", p.dtype, *extras])
