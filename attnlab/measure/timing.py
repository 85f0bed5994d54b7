"""How long one call takes, by the device's own clock where there is one.

On a GPU a pair of CUDA events around a call measures the call only when the device never waits for the host in between.
So a sleep kernel goes first, and while it runs the host queues many samples behind it, each one

    flush the L2 cache · start event · the call · end event

A sample counts as clean when its start event had not been reached by the time its end event was queued: then launch cost
cannot be inside it. (triton.testing.do_bench leaves out the sleep; below some 50 µs it then times the host.) What a pair
of events spans with nothing between them is measured once and subtracted.

On a CPU there is nothing to queue: samples are host time around the call, caches as the previous call left them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from attnlab.measure.interval import relative_half_width

MAX_SAMPLES = 300
FLUSH_FACTOR = 2  # of the reported L2 size
SMALLEST_FLUSH_BYTES = 64 << 20
BATCH_MS = 60.0  # about as much device time as is queued at once: cancelling waits for no more
WALL_SAMPLES = 5


class Cancelled(Exception):
    """The run was cancelled between two calls."""


@dataclass(frozen=True)
class Timing:
    """Times of one call in ms; `samples_ms` in time order."""

    samples_ms: tuple[float, ...]
    clock: str
    wall_ms: float | None = None
    host_ms: float | None = None
    launch_bound: bool = False
    notes: tuple[str, ...] = ()

    @property
    def in_samples_s(self) -> float:
        return sum(self.samples_ms) / 1e3


@dataclass(frozen=True)
class Stop:
    """When sampling ends: the interval is within `target` or `budget_s` is used up, but never before `min_samples`."""

    budget_s: float
    min_samples: int
    target: float

    def reached(self, samples: list[float], started: float) -> bool:
        if len(samples) < self.min_samples:
            return False
        if len(samples) >= MAX_SAMPLES or time.perf_counter() - started >= self.budget_s:
            return True
        return relative_half_width(samples) <= self.target


Call = Callable[[], Any]
Check = Callable[[], None]  # raises Cancelled


class Timer(Protocol):
    def first_call(self, call: Call) -> tuple[Any, float]: ...

    def sample(self, call: Call, stop: Stop, check: Check, wall: bool) -> Timing: ...


class HostTimer:
    """Host time around a call that has ended when it returns."""

    clock = "host time, caches as the previous call left them"

    def first_call(self, call: Call) -> tuple[Any, float]:
        """(what the call returned, seconds)."""
        started = time.perf_counter()
        result = call()
        return result, time.perf_counter() - started

    def sample(self, call: Call, stop: Stop, check: Check, wall: bool) -> Timing:
        samples: list[float] = []
        started = time.perf_counter()
        while not stop.reached(samples, started):
            check()
            before = time.perf_counter()
            call()
            samples.append((time.perf_counter() - before) * 1e3)
        return Timing(tuple(samples), self.clock, wall_ms=statistics.median(samples))


class CudaTimer:
    """CUDA events around calls queued behind a sleep kernel. One device, its current stream."""

    clock = "CUDA events, queue filled ahead, cold L2"

    def __init__(self, device: torch.device):
        self.device = device
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(max(FLUSH_FACTOR * l2_bytes, SMALLEST_FLUSH_BYTES), dtype=torch.int8, device=device)
        self._cycles_per_ms = self._calibrate_sleep()
        self.empty_ms = 0.0
        self.empty_ms = statistics.median(self._batch(lambda: None, 50, sleep_ms=3.0)[0])

    def _calibrate_sleep(self) -> float:
        cycles = 5_000_000
        for _ in range(3):  # the clock of an idle card rises during the first
            start, end = self._event(), self._event()
            start.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
        return cycles / start.elapsed_time(end)

    def _event(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)

    def first_call(self, call: Call) -> tuple[Any, float]:
        torch.cuda.synchronize(self.device)
        started = time.perf_counter()
        result = call()
        torch.cuda.synchronize(self.device)
        return result, time.perf_counter() - started

    def _batch(self, call: Call, count: int, sleep_ms: float) -> tuple[list[float], int, float]:
        """Queues `count` samples behind a sleep; (ms of each, how many were clean, host seconds for one)."""
        pairs = [(self._event(), self._event()) for _ in range(count)]
        clean = 0
        torch.cuda._sleep(int(sleep_ms * self._cycles_per_ms))
        queued = time.perf_counter()
        for start, end in pairs:
            self._flush.zero_()
            start.record()
            call()
            end.record()
            clean += not start.query()
        host_s = (time.perf_counter() - queued) / count
        torch.cuda.synchronize(self.device)
        return [max(start.elapsed_time(end) - self.empty_ms, 0.0) for start, end in pairs], clean, host_s

    def _wall_ms(self, call: Call) -> tuple[float, float]:
        """(what a caller waits, what the host needs to launch), ms: synchronise, call, synchronise."""
        torch.cuda.synchronize(self.device)
        before = time.perf_counter()
        call()
        launched = time.perf_counter()
        torch.cuda.synchronize(self.device)
        return (time.perf_counter() - before) * 1e3, (launched - before) * 1e3

    def sample(self, call: Call, stop: Stop, check: Check, wall: bool) -> Timing:
        """`wall` adds wall-clock samples; they cost a call each, so a quick pass over long calls leaves them out."""
        walls, hosts = [], []
        for _ in range(WALL_SAMPLES if wall else 0):
            check()
            wall_ms, host_ms = self._wall_ms(call)
            walls.append(wall_ms)
            hosts.append(host_ms)
            if wall_ms > 50:
                break
        samples: list[float] = []
        dirty = 0
        host_s = statistics.median(hosts) / 1e3 if hosts else 1e-3
        count = stop.min_samples
        started = time.perf_counter()
        while not stop.reached(samples, started):
            check()
            # Twice what queueing the batch should take: being early costs a little, being late spoils the samples.
            times, clean, host_s = self._batch(call, count, sleep_ms=min(0.2 + 2e3 * host_s * count, 50.0))
            samples += times
            dirty += count - clean
            typical_ms = max(statistics.median(samples), 1e-3)
            count = max(1, min(math.ceil(BATCH_MS / typical_ms), 20, MAX_SAMPLES - len(samples)))
        middle = statistics.median(samples)
        notes = ()
        if dirty > len(samples) / 2:
            notes = ("the queue could not be kept full: launch cost is inside device_ms",)
        host_ms = statistics.median(hosts) if hosts else None
        return Timing(
            tuple(samples),
            self.clock,
            wall_ms=statistics.median(walls) if walls else None,
            host_ms=host_ms,
            launch_bound=bool(notes) or (host_ms is not None and host_ms > middle),
            notes=notes,
        )


def make_timer(device: torch.device) -> Timer:
    return CudaTimer(device) if device.type == "cuda" else HostTimer()
