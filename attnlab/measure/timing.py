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

from attnlab import nvml
from attnlab.measure.interval import relative_half_width

MAX_SAMPLES = 300
FLUSH_FACTOR = 2  # of the reported L2 size
SMALLEST_FLUSH_BYTES = 64 << 20
BATCH_MS = 60.0  # about as much device time as is queued at once: a cancel waits for no more, or for one call


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
    reading: nvml.Reading | None = None  # clock, power and temperature while the samples ran
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
    def timed_call(self, call: Call) -> tuple[Any, float]: ...

    def sample(self, call: Call, stop: Stop, check: Check, walls: int) -> Timing:
        """`walls` wall-clock samples first (on a device only; they cost a call each), then samples until `stop`."""
        ...


class HostTimer:
    """Host time around a call that has ended when it returns."""

    clock = "host time, caches as the previous call left them"

    def timed_call(self, call: Call) -> tuple[Any, float]:
        """(what the call returned, seconds)."""
        started = time.perf_counter()
        result = call()
        return result, time.perf_counter() - started

    def sample(self, call: Call, stop: Stop, check: Check, walls: int) -> Timing:
        samples: list[float] = []
        started = time.perf_counter()
        while not stop.reached(samples, started):
            check()
            before = time.perf_counter()
            call()
            samples.append((time.perf_counter() - before) * 1e3)
        return Timing(tuple(samples), self.clock, wall_ms=statistics.median(samples))


@dataclass(frozen=True)
class Batch:
    samples_ms: list[float]
    hosts_ms: list[float]  # what launching each call took the host
    dirty: int  # samples that the device may have begun before they were queued whole
    reading: nvml.Reading | None


class CudaTimer:
    """CUDA events around calls queued behind a sleep kernel. One device, its current stream."""

    clock = "CUDA events, queue filled ahead, cold L2"

    def __init__(self, device: torch.device):
        self.device = device
        nvml.hold_nvml()
        self._uuid = str(torch.cuda.get_device_properties(device).uuid)
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(max(FLUSH_FACTOR * l2_bytes, SMALLEST_FLUSH_BYTES), dtype=torch.int8, device=device)
        self._cycles_per_ms = self._calibrate_sleep()
        self.empty_ms = 0.0
        self.empty_ms = statistics.median(self._batch(lambda: None, 50, sleep_ms=3.0).samples_ms)

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

    def timed_call(self, call: Call) -> tuple[Any, float]:
        torch.cuda.synchronize(self.device)
        started = time.perf_counter()
        result = call()
        torch.cuda.synchronize(self.device)
        return result, time.perf_counter() - started

    def _batch(self, call: Call, count: int, sleep_ms: float, read: bool = False) -> Batch:
        """Queues `count` samples behind a sleep and waits for them; `read` asks the driver how the card is meanwhile."""
        pairs = [(self._event(), self._event()) for _ in range(count)]
        hosts_ms: list[float] = []
        clean = 0
        torch.cuda._sleep(int(sleep_ms * self._cycles_per_ms))
        for start, end in pairs:
            self._flush.zero_()
            start.record()
            before = time.perf_counter()
            call()
            hosts_ms.append((time.perf_counter() - before) * 1e3)
            end.record()
            clean += not start.query()
        reading = nvml.reading(self._uuid) if read else None
        torch.cuda.synchronize(self.device)
        times_ms = [max(start.elapsed_time(end) - self.empty_ms, 0.0) for start, end in pairs]
        return Batch(times_ms, hosts_ms, count - clean, reading)

    def sample(self, call: Call, stop: Stop, check: Check, walls: int) -> Timing:
        walls_ms: list[float] = []
        while len(walls_ms) < walls:
            check()
            walls_ms.append(self.timed_call(call)[1] * 1e3)
        samples_ms: list[float] = []
        hosts_ms = [1.0]  # a guess, for the first sleep alone
        dirty, count, reading = 0, stop.min_samples, None
        started = time.perf_counter()
        while not stop.reached(samples_ms, started):
            check()
            # Twice what queueing the batch should take: being early costs a little, being late spoils the samples.
            sleep_ms = min(0.2 + 2 * statistics.median(hosts_ms) * count, 50.0)
            batch = self._batch(call, count, sleep_ms, read=not samples_ms)
            reading = batch.reading or reading
            hosts_ms = batch.hosts_ms
            samples_ms += batch.samples_ms
            dirty += batch.dirty
            typical_ms = max(statistics.median(samples_ms), 1e-3)
            count = max(1, min(math.ceil(BATCH_MS / typical_ms), 20, MAX_SAMPLES - len(samples_ms)))
        host_ms = statistics.median(hosts_ms)
        unfilled = dirty > len(samples_ms) / 2
        return Timing(
            tuple(samples_ms),
            self.clock,
            wall_ms=statistics.median(walls_ms) if walls_ms else None,
            host_ms=host_ms,
            reading=reading,
            launch_bound=unfilled or host_ms > statistics.median(samples_ms),
            notes=("the queue could not be kept full: launch cost is inside device_ms",) if unfilled else (),
        )


def make_timer(device: torch.device) -> Timer:
    return CudaTimer(device) if device.type == "cuda" else HostTimer()
