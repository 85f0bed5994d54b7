"""The line that says what the lab will use and why, from what a worker reports or from what the doctor found: the same words.

`lab_line` costs nothing: it reads what the worker has said, and tries nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.device import PathStatus
from attnlab.doctor.finding import Finding
from attnlab.doctor.judgement import Machine
from attnlab.paths import FLASH_CANDIDATES
from attnlab.run import WorkerState

OWN = "PyTorch's own flash kernel"
NO_GPU = "no NVIDIA GPU is seen here"
GPU_IDLE = "PyTorch cannot use the NVIDIA GPU that is here"
# What the doctor knows besides, by the kind of the GPU's finding; the rows below the line say the rest.
GPU_IDLE_BECAUSE = {
    "no-gpu": NO_GPU,
    "cpu-wheel": "this PyTorch is built for CPUs alone, though an NVIDIA GPU is here",
    "driver-old": "the NVIDIA driver is too old for this PyTorch",
    "driver-stale": "the NVIDIA driver was updated since the last start",
    "no-driver": "no driver is loaded for the NVIDIA GPU that is here",
    "hidden": "CUDA_VISIBLE_DEVICES hides the NVIDIA GPU that is here",
}


def lab_line(worker: WorkerState, *, gpu_seen: bool = False) -> str:
    """One sentence for the live page. `gpu_seen`: the driver of this machine shows a GPU (`attnlab.nvml.gpu_visible`)."""
    if worker.state == "failed":
        return f"The lab can measure nothing here: {worker.text or 'its worker does not start'}."
    if worker.device is None:
        return "The lab looks for a device."
    if worker.device.kind == "cuda":
        return on_gpu(worker.device.name, worker.paths)
    return on_cpu(GPU_IDLE if gpu_seen else NO_GPU, worker.paths)


def doctor_line(machine: Machine, found: Sequence[Finding]) -> str:
    """The same sentence from the doctor's findings; why a GPU is not used is known here."""
    by_name = {finding.name: finding for finding in found}
    torch, gpu = by_name["torch"], by_name["gpu"]
    if "checking" in (torch.status, gpu.status):
        return "Looking at PyTorch and at the GPU."
    if not machine.usable:
        return f"The lab can measure nothing here: {gpu.cause if machine.torch_works else torch.cause}."
    flash = [by_name[name] for name in FLASH_CANDIDATES]
    if any(finding.status == "checking" for finding in flash):
        return "Trying each FlashAttention."
    paths = tuple(path_status(finding) for finding in flash)
    if machine.usable_gpu:
        return on_gpu(machine.card, paths)
    return on_cpu(GPU_IDLE_BECAUSE.get(gpu.kind, GPU_IDLE), paths)


def path_status(finding: Finding) -> PathStatus:
    state = {"works": "ready", "limited": "ready", "broken": "broken"}.get(finding.status, "missing")
    own = finding.name == "sdpa-flash"
    provider = f"PyTorch {finding.version}" if own else f"{finding.name} {finding.version}".strip()
    return PathStatus(name=finding.name, state=state, provider=provider, reason=finding.cause)


def on_gpu(card: str, paths: Sequence[PathStatus]) -> str:
    """ "The lab measures on NVIDIA H200; flash is flash-attn-4 4.0.0b36, the newest FlashAttention, which works here." """
    by_name = {path.name: path for path in paths}
    passed: list[PathStatus] = []
    for name in FLASH_CANDIDATES:
        status = by_name.get(name)
        if status is not None and status.usable:
            tried = "which works here" if status.state == "ready" else "which is installed"
            why = f"because {_why_not(passed)}" if passed else f"the newest FlashAttention, {tried}"
            return f"The lab measures on {card}; flash is {_called(status)}, {why}."
        passed += [status] if status is not None else []
    return f"The lab measures on {card}; no flash path runs here, because {_why_not(passed)}."


def on_cpu(why: str, paths: Sequence[PathStatus]) -> str:
    own = next((path for path in paths if path.name == "sdpa-flash"), None)
    flash = "flash is PyTorch's CPU kernel, the same algorithm"
    if own is not None and not own.usable:
        flash = "no flash path runs here"
    return f"The lab measures on the CPU, because {why}; {flash}."


def _called(path: PathStatus) -> str:
    """Package and version, without the kernel that ran."""
    return OWN if path.name == "sdpa-flash" else path.provider.partition(" · ")[0] or path.name


def _why_not(passed: Sequence[PathStatus]) -> str:
    """ "flash-attn-4 and flash-attn-3 are not installed", "flash-attn-2 2.7.4.post1 does not work here" """
    missing = [path.name for path in passed if path.state == "missing"]
    broken = [_called(path) for path in passed if path.state == "broken"]
    parts = []
    for names, one, several in ((missing, "is not installed", "are not installed"),
                                (broken, "does not work here", "do not work here")):  # fmt: skip
        if names:
            listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
            parts.append(f"{listed} {one if len(names) == 1 else several}")
    return " and ".join(parts) or "none is known"
