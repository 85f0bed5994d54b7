"""Which kernel really ran: read from torch.profiler, never from a name that a caller chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.profiler import profile  # torch.profiler's wrapper imports the compiler, 2.4 s, for the same events

NAME_LENGTH = 80
# Operations that only arrange memory, and what the compiler runs around its own; on a CPU they would hide what computes.
BESIDE = (
    "##",
    "Torch-Compiled Region",
    "TorchDynamo",
    "Pregraph bytecode",
    "AOTDispatcher",
    "CompiledFunction",
    "aten::empty",
    "aten::copy_",
    "aten::clone",
    "aten::zeros",
    "aten::zero_",
    "aten::fill_",
    "aten::transpose",
    "[memory]",
)


@dataclass(frozen=True)
class Kernel:
    """One kernel, copy or memset on the device, on the profiler's clock."""

    name: str
    start_us: float
    end_us: float

    @property
    def us(self) -> float:
        return self.end_us - self.start_us


def timeline(work: Callable[[], Any], device: torch.device) -> list[Kernel]:
    """What ran on a CUDA device during `work`, by start; empty where the profiler may not look."""
    with profile(use_device="cuda", use_cpu=False, use_kineto=True) as profiler:
        work()
        torch.cuda.synchronize(device)
    found = [
        Kernel(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.function_events
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return sorted(found, key=lambda kernel: kernel.start_us)


class Ran:
    """With-block; afterwards `main` is the name of the kernel in which a CUDA device spent most of its time inside it; ""
    where the profiler may not look."""

    main = ""

    def __enter__(self) -> Ran:
        self._profiler = profile(use_device="cuda", use_cpu=False, use_kineto=True)
        self._profiler.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._profiler.__exit__(*exception)
        events = [e for e in self._profiler.function_events if e.device_type == torch.autograd.DeviceType.CUDA]
        self.main = _longest((e.name, e.time_range.elapsed_us()) for e in events)


def main_operator(profiler: profile) -> str:
    """The name of the operator in which a CPU spent most of its time while it was profiled."""
    return _longest((event.name, event.self_cpu_time_total) for event in profiler.function_events)


def names(call: Callable[[], Any], device: torch.device) -> list[str]:
    """The kernels of one call on a CUDA device, shortened, in order; empty on a CPU and where the profiler may not look."""
    return [_short(kernel.name) for kernel in timeline(call, device)] if device.type == "cuda" else []


def main_kernel(call: Callable[[], Any], device: torch.device) -> str:
    """The name of the kernel (on a CPU: the operator) in which one call spends most of its time; "" when nothing was seen."""
    if device.type == "cuda":
        with Ran() as ran:
            call()
            torch.cuda.synchronize(device)
        return ran.main
    with profile() as profiler:
        call()
    return main_operator(profiler)


def _longest(ran: Iterable[tuple[str, float]]) -> str:
    """The name with the most microseconds, shortened; "" when there is none."""
    spent: dict[str, float] = {}
    for name, us in ran:
        if not name.startswith(BESIDE):
            spent[name] = spent.get(name, 0.0) + us
    return _short(max(spent, key=spent.__getitem__)) if spent else ""


def _short(name: str) -> str:
    """A kernel's bare name: without return type, template arguments and parameters."""
    bare = name.replace("(anonymous namespace)::", "").split("(")[0].split("<")[0]
    bare = bare.removeprefix("void ").removeprefix("aten::").strip()
    bare = bare.removeprefix("kernel_cutlass_kernel_").split("_object_at")[0]  # how CuTe DSL wraps a kernel's name
    return (bare or name)[:NAME_LENGTH]
