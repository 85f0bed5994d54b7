"""How long one call takes, by the device's own clock where there is one.

On a GPU a pair of CUDA events around a call measures the call only when the device never waits for the host in between.
So a sleep kernel goes first, and while it runs the host queues many samples behind it, each one

    flush the L2 cache (unless it shall be hot) · start event · the call · end event

A sample counts when its start event had not been reached by the time its end event was queued: then launch cost cannot
be inside it. (triton.testing.do_bench leaves out the sleep; where a call is launched more slowly than it runs, it times the
host.) What a pair of events spans beside the kernel between them, some 3 µs, is measured once and subtracted: an empty
kernel, timed with events and by the profiler.

Two more clocks beside it: the same call captured once as a CUDA graph and replayed, timed in the same way, which is what
a launch-bound caller can reach; and wall-clock time, synchronise, call, synchronise, which is what every quick script
reads. While samples run a thread watches the card's clock, power and temperature; samples between which the clock moved
are taken anew, a bounded number of times, and those on the way to the level where the times stay do not count. Work that is
hard and long enough to reach the card's power limit comes in bursts, with a rest before each (roofline.pace).

On a CPU there is nothing to queue: samples are host time around the call, caches as the previous call left them.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from attnlab import nvml
from attnlab.measure.kernels import timeline
from attnlab.measure.series import HURRIED, LATE, MOVED, Series, Stop
from attnlab.measurement import clock_moved
from attnlab.paths.base import first_line
from attnlab.roofline import Floor, Pace

RETRIES = 2  # of a series during which the card's clock moved
FLUSH_FACTOR = 2  # of the reported L2 size
SMALLEST_FLUSH_BYTES = 64 << 20
BATCH_MS = 60.0  # about as much device time as is queued at once: a cancel waits for no more, or for one call
FIRST_SLEEP_MS, LONGEST_SLEEP_MS = 0.3, 50.0
CALIBRATION_SAMPLES, CALIBRATION_SLEEP_MS = 50, 3.0  # what a pair of events spans; three times what queueing them takes
CALIBRATION_BATCHES = 8  # even: on an H200 batches differ by some 0.4 µs, mostly by turns
FIRST_QUEUE_MS = 0.3  # a guess at what queueing a sample takes, for the first sleep alone
REST_S = 0.05  # before samples are taken anew because the clock moved


class Cancelled(Exception):
    """The run was cancelled between two calls."""


Call = Callable[[], Any]
Check = Callable[[], None]  # raises Cancelled
PaceOf = Callable[[float], Pace | None]  # of calls of so many ms


def at_once(ms: float) -> Pace | None:
    """No rest between calls, whatever they take."""
    return None


class Timer(Protocol):
    l2_modes: tuple[str, ...]

    def timed_call(self, call: Call) -> tuple[Any, float]: ...

    def clock(self, l2: str) -> str:
        """How the samples are taken, in words."""
        ...

    def sample(
        self, series: Series, call: Call, stop: Stop, check: Check, l2: str, limits: Sequence[Floor],
        pace_of: PaceOf = at_once,
    ) -> None:  # fmt: skip
        """Adds samples to the series until `stop`."""
        ...

    def rest(self, series: Series) -> None:
        """The series' rest, if it has one; before any call on another clock."""
        ...

    def graph(self, series: Series, call: Call, count: int, check: Check, l2: str) -> None:
        """Adds up to `count` replays of the call as a graph, or says in the series why there are none."""
        ...


class HostTimer:
    """Host time around a call that has ended when it returns."""

    l2_modes = ("",)

    def clock(self, l2: str) -> str:
        return "host time, caches as the previous call left them"

    def timed_call(self, call: Call) -> tuple[Any, float]:
        """(what the call returned, seconds)."""
        started = time.perf_counter()
        result = call()
        return result, time.perf_counter() - started

    def sample(
        self, series: Series, call: Call, stop: Stop, check: Check, l2: str, limits: Sequence[Floor],
        pace_of: PaceOf = at_once,
    ) -> None:  # fmt: skip
        before, started = len(series.samples_ms), time.perf_counter()
        missing = stop.missing(series.counting(limits))
        while not stop.reached(series.counting(limits), len(series.samples_ms) - before, missing, started):
            check()
            began = time.perf_counter()
            call()
            series.samples_ms.append((time.perf_counter() - began) * 1e3)

    def rest(self, series: Series) -> None:
        """A host needs none."""

    def graph(self, series: Series, call: Call, count: int, check: Check, l2: str) -> None:
        """A host has no CUDA graphs, and nothing to say about it."""


class Batch(NamedTuple):
    """Samples that were queued together, one value for each."""

    times_ms: list[float]  # on the device
    hosts_ms: list[float]  # what launching the call took the host, and
    queues_ms: list[float]  # the whole sample, flush and events included
    in_time: list[bool]  # whether it was queued before the device came to it

    @property
    def ahead_ms(self) -> list[float]:
        """The times of those that were."""
        return [ms for ms, queued in zip(self.times_ms, self.in_time, strict=True) if queued]


class CudaTimer:
    """CUDA events around calls queued behind a sleep kernel. One device, its current stream."""

    l2_modes = ("cold", "hot")

    def __init__(self, device: torch.device):
        self.device = device
        nvml.hold_nvml()
        self._uuid = str(torch.cuda.get_device_properties(device).uuid)
        self.l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self.flush_bytes = max(FLUSH_FACTOR * self.l2_bytes, SMALLEST_FLUSH_BYTES)
        # One for all graphs. Matrix products take a workspace for each stream: taken here, it is in no graph's memory.
        self._capturing = torch.cuda.Stream(device)
        with torch.cuda.stream(self._capturing):
            torch.mm(*torch.zeros(2, 64, 64, device=device, dtype=torch.bfloat16))
        torch.cuda.synchronize(device)
        self._flush = torch.empty(self.flush_bytes, dtype=torch.int8, device=device)
        self._cycles_per_ms = self._calibrate_sleep()
        self.beside_ms = dict.fromkeys(self.l2_modes, 0.0)
        self.beside_ms = {l2: self._calibrate_events(l2) for l2 in self.l2_modes}

    def clock(self, l2: str) -> str:
        return f"CUDA events, queue filled ahead, {l2} L2"

    def _calibrate_sleep(self) -> float:
        cycles = 5_000_000
        times_ms = []
        for _ in range(3):  # the clock of an idle card rises during the first; a busy host may be late in any
            start, end = self._event(), self._event()
            start.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
            times_ms.append(start.elapsed_time(end))
        return cycles / min(times_ms)

    def _calibrate_events(self, l2: str) -> float:
        """What a pair of events spans beside one kernel, in ms; beside nothing where the profiler may not look."""

        def empty_kernel() -> None:
            torch.cuda._sleep(0)

        def behind_a_sleep() -> None:
            torch.cuda._sleep(int(self._cycles_per_ms))
            for _ in range(20):
                if l2 == "cold":
                    self._flush.zero_()
                empty_kernel()

        ran = timeline(behind_a_sleep, self.device)
        spins_ms = [kernel.us / 1e3 for kernel in ran[1:] if kernel.name == ran[0].name]
        if not spins_ms:
            return self._spans_ms(lambda: None, l2)
        return max(self._spans_ms(empty_kernel, l2) - statistics.median(spins_ms), 0.0)

    def _spans_ms(self, call: Call, l2: str) -> float:
        return statistics.median(self._queued_ahead_ms(call, l2) for _ in range(CALIBRATION_BATCHES))

    def _queued_ahead_ms(self, call: Call, l2: str) -> float:
        """The median of samples that were all queued ahead. What launching costs would otherwise be in here where the host
        is busy while a worker starts, and be taken off each sample that follows. Behind ever longer sleeps; 0 when a host
        is too slow for any."""
        sleep_ms, count = CALIBRATION_SLEEP_MS, CALIBRATION_SAMPLES
        while True:
            ahead_ms = self._batch(call, count, sleep_ms, l2).ahead_ms
            if 2 * len(ahead_ms) >= count:
                return statistics.median(ahead_ms)
            if sleep_ms >= LONGEST_SLEEP_MS:
                return 0.0
            sleep_ms = min(2 * sleep_ms, LONGEST_SLEEP_MS)

    def _event(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)

    def timed_call(self, call: Call) -> tuple[Any, float]:
        torch.cuda.synchronize(self.device)
        started = time.perf_counter()
        result = call()
        torch.cuda.synchronize(self.device)
        return result, time.perf_counter() - started

    def long_call(self, series: Series, call: Call, l2: str) -> None:
        """One call on both clocks, the wall's and the device's. Beside a long call its launch is nothing: its first kernel
        runs while the host queues the others, so that no queue need be filled ahead. The device's does not count where the
        allocator had to ask the driver for memory meanwhile, which the call would wait for."""
        self.rest(series)
        if l2 == "cold":
            self._flush.zero_()
        start, end, asked = self._event(), self._event(), self._memory_asked_for()

        def between() -> None:
            start.record()
            call()
            end.record()

        series.walls_ms.append(self.timed_call(between)[1] * 1e3)
        if self._memory_asked_for() == asked:
            series.samples_ms.append(start.elapsed_time(end))

    def _memory_asked_for(self) -> int:
        """How often the allocator has asked the driver for memory so far."""
        return torch.cuda.memory_stats(self.device).get("segment.all.allocated", 0)

    def _batch(self, call: Call, count: int, sleep_ms: float, l2: str) -> Batch:
        """Queues `count` samples behind a sleep and waits for them."""
        pairs = [(self._event(), self._event()) for _ in range(count)]
        batch = Batch([], [], [], [])
        torch.cuda._sleep(int(sleep_ms * self._cycles_per_ms))
        for start, end in pairs:
            began = time.perf_counter()
            if l2 == "cold":
                self._flush.zero_()
            start.record()
            before = time.perf_counter()
            call()
            batch.hosts_ms.append((time.perf_counter() - before) * 1e3)
            end.record()
            batch.in_time.append(not start.query())
            batch.queues_ms.append((time.perf_counter() - began) * 1e3)
        torch.cuda.synchronize(self.device)
        batch.times_ms.extend(max(start.elapsed_time(end) - self.beside_ms[l2], 0.0) for start, end in pairs)
        return batch

    def rest(self, series: Series) -> None:
        if series.pace is not None:
            time.sleep(series.pace.rest_s)

    def sample(
        self, series: Series, call: Call, stop: Stop, check: Check, l2: str, limits: Sequence[Floor],
        pace_of: PaceOf = at_once,
    ) -> None:  # fmt: skip
        started = time.perf_counter()
        if known_ms := series.samples_ms or series.walls_ms:
            series.pace = pace_of(statistics.median(known_ms)) or series.pace
        if series.unfilled:  # what had to count then need not now
            series.drop(LATE)
            series.unfilled = False
        earlier, series.readings = series.conditions, []
        torch.cuda._sleep(int(FIRST_SLEEP_MS * self._cycles_per_ms))  # the first look at the card finds it working
        with nvml.Watch(self._uuid, readings=series.readings):
            for retry in range(RETRIES + 1):
                self._sample(series, call, stop, check, l2, limits, started, earlier)
                if series.pace is None and (pace := pace_of(statistics.median(series.samples_ms))):
                    series.drop(HURRIED)
                    series.pace = pace
                    self._sample(series, call, stop, check, l2, limits, time.perf_counter(), nvml.Conditions())
                seen, over = series.conditions, time.perf_counter() - started >= stop.budget_s
                moved = clock_moved(seen.clock_mhz_low, seen.clock_mhz_high)
                if retry == RETRIES or over or not moved or series.pace:  # rests are what can be done for the clock
                    break
                time.sleep(REST_S)
                series.drop(MOVED)  # with what was read of the card at rest
                earlier = nvml.Conditions()
        if len(series.counting(limits)) < stop.min_samples:
            series.count_late()

    def _sample(
        self, series: Series, call: Call, stop: Stop, check: Check, l2: str, limits: Sequence[Floor], started: float,
        earlier: nvml.Conditions,
    ) -> None:  # fmt: skip
        begun = len(series.samples_ms)
        count = missing = stop.missing(series.counting(limits))
        while not stop.reached(series.counting(limits), len(series.samples_ms) - begun, missing, started):
            check()
            # Twice what queueing the batch should take: being early costs a little, being late spoils the samples.
            queue_ms = statistics.median(series.queues_ms) if series.queues_ms else FIRST_QUEUE_MS
            count = max(1, min(count, int(LONGEST_SLEEP_MS / (2 * queue_ms))))
            if series.pace is not None:
                count = min(count, series.pace.calls)
                self.rest(series)
            batch = self._batch(call, count, 0.2 + 2 * queue_ms * count, l2)
            series.hosts_ms, series.queues_ms = batch.hosts_ms, batch.queues_ms
            if series.pace is None and clock_moved(*clock_range(earlier, series.conditions)):
                series.unused |= dict.fromkeys(set(range(begun)) - set(series.unused), MOVED)
                earlier = nvml.Conditions()
            place = len(series.samples_ms)
            series.unused |= {place + i: LATE for i, queued in enumerate(batch.in_time) if not queued}
            series.samples_ms += batch.times_ms
            if time.perf_counter() - started < stop.budget_s:
                series.leave_drift(limits)
            typical_ms = max(statistics.median(series.samples_ms), 1e-3)
            left_ms = (stop.budget_s - (time.perf_counter() - started)) * 1e3
            count = max(1, min(math.ceil(BATCH_MS / typical_ms), 20, int(left_ms / typical_ms)))

    def graph(self, series: Series, call: Call, count: int, check: Check, l2: str) -> None:
        count -= len(series.graphs_ms)
        if count <= 0 or series.no_graph:
            return
        check()
        graph, stream, pool = torch.cuda.CUDAGraph(), self._capturing, torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream(self.device))
        try:
            # By hand: torch.cuda.graph would empty the allocator's cache first, and the next point would pay for it.
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=pool)
                try:
                    call()
                except Exception:
                    with contextlib.suppress(RuntimeError):  # that nothing was captured; the reason is the first error
                        graph.capture_end()
                    raise
                graph.capture_end()
        except Exception as error:  # whatever a library raises for a call that it cannot capture is its answer
            # A capture that did not end well leaves the allocator in its midst: it would never again give back what it
            # holds in store when memory runs out.
            with contextlib.suppress(RuntimeError, AttributeError):  # it had ended, or PyTorch has no such call
                torch._C._cuda_endAllocateToPool(self.device.index or 0, pool)
            series.no_graph = f"no CUDA graph: {first_line(error)}"
            # The generator was told that it is captured, and would refuse to draw for ever.
            generator = torch.cuda.default_generators[self.device.index or 0]
            generator.graphsafe_set_state(generator.clone_state())
            return
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph.replay()  # the first replay uploads it
        burst = series.pace.calls if series.pace else count
        for begun in range(0, count, burst):
            self.rest(series)
            series.graphs_ms += self._batch(graph.replay, min(burst, count - begun), 0.5, l2).ahead_ms


def clock_range(earlier: nvml.Conditions, now: nvml.Conditions) -> tuple[float | None, float | None]:
    """(lower, higher) of the two median clocks in MHz; None where one is unknown."""
    if earlier.clock_mhz is None or now.clock_mhz is None:
        return None, None
    return min(earlier.clock_mhz, now.clock_mhz), max(earlier.clock_mhz, now.clock_mhz)


def make_timer(device: torch.device) -> Timer:
    return CudaTimer(device) if device.type == "cuda" else HostTimer()
