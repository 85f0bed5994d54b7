"""Which kernel really ran: read from torch.profiler, never from a name that a caller chose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import profile  # torch.profiler's wrapper imports the compiler, 2.4 s, for the same events

NAME_LENGTH = 80
# Operations that only arrange memory; on a CPU they would hide the one that computes.
ARRANGING = (
    "aten::empty",
    "aten::copy_",
    "aten::clone",
    "aten::zeros",
    "aten::zero_",
    "aten::fill_",
    "aten::transpose",
    "[memory]",
)


def main_kernel(call: Callable[[], Any], device: torch.device) -> str:
    """The name of the kernel (on a CPU: the operator) in which one call spends most of its time; "" when nothing was seen."""
    cuda = device.type == "cuda"
    with profile(use_device="cuda", use_cpu=False, use_kineto=True) if cuda else profile() as profiler:
        call()
        if cuda:
            torch.cuda.synchronize(device)
    spent: dict[str, float] = {}
    for event in profiler.function_events:
        if cuda and event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        if event.name.startswith(ARRANGING):
            continue
        spent[event.name] = spent.get(event.name, 0.0) + (
            event.device_time_total if cuda else event.self_cpu_time_total
        )
    return _short(max(spent, key=spent.__getitem__)) if spent else ""


def _short(name: str) -> str:
    """A kernel's bare name: without return type, template arguments and parameters."""
    bare = name.split("(")[0].split("<")[0].removeprefix("void ").removeprefix("aten::").strip()
    bare = bare.removeprefix("kernel_cutlass_kernel_").split("_object_at")[0]  # how CuTe DSL wraps a kernel's name
    return (bare or name)[:NAME_LENGTH]
