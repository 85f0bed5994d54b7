"""How much memory one call takes above what stood before it, really measured.

Before a call stand its inputs and, where a backward pass is measured alone, what its forward pass has saved.

On a GPU: the caching allocator's peak, reset right before, minus what was allocated then (torch.cuda.memory_stats;
"requested" bytes would leave out the rounding that really occupies the card). Library workspaces are taken once at the
start of the worker, so that no first point is inflated by them.

On a CPU PyTorch keeps no peak, so one call runs under PyTorch's profiler with profile_memory=True, which logs every
allocation and release of host memory in time order; the highest running sum is the peak. Scratch that a library takes
past PyTorch's allocator (oneDNN, MKL) is not in it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import profile  # torch.profiler's wrapper imports the compiler, 2.4 s, for the same events

from attnlab import cgroup
from attnlab.measure.kernels import main_operator

CUDA_SOURCE = "peak of PyTorch's CUDA allocator above the inputs"
HOST_SOURCE = "allocator events of PyTorch's profiler above the inputs"


class PeakAbove:
    """With-block; afterwards `bytes` is the most allocated on the CUDA device inside it above what stood at its start.
    On a CPU it stays 0: see host_peak."""

    def __init__(self, device: torch.device):
        self.device = device
        self.bytes = 0

    def __enter__(self) -> PeakAbove:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.device.type == "cuda":
            self.bytes = torch.cuda.max_memory_allocated(self.device) - self._before


def host_peak(call: Callable[[], Any]) -> tuple[int, str]:
    """(the peak of host memory that PyTorch allocated during one call, in bytes, the result included; the name of the
    operator in which it spent most of its time)."""
    with profile(profile_memory=True) as profiler:
        result = call()
    del result
    running = peak = 0
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU:
            running += event.nbytes()
            peak = max(peak, running)
    return peak, main_operator(profiler)


def release(device: torch.device) -> None:
    """Gives back what nothing refers to any more, so that one point's memory is not the next one's."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_bytes(device: torch.device) -> int:
    """What a new point could take: free on the device plus cached by this process; on a CPU MemAvailable, as far as this
    process's container goes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    room = cgroup.room_bytes()
    return free if room is None else min(free, room)


def total_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemTotal"))


def used_bytes(device: torch.device) -> int:
    """What is in use beside the allocator's own book: on the whole device by the driver, or resident in this process."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total - free
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))
