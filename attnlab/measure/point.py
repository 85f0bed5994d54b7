"""One point: one path on one problem → one Measurement, whatever happens.

The order: a trial launch (can it run at all?), the first call on the real tensors (timed apart, its outputs checked
against float64), the samples, and the memory that one call takes. What cannot change between two visits of a problem,
its answer and its peak, is worked out once; samples of a later visit join those of the first.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch

from attnlab.measure import memory
from attnlab.measure.accuracy import Truth, judge, truth
from attnlab.measure.facts import device_facts
from attnlab.measure.inputs import Outputs, make_call, make_inputs
from attnlab.measure.timing import Cancelled, Check, Series, Stop, make_timer
from attnlab.measure.trial import DeviceLost, Say, Trials, device_lost
from attnlab.measurement import Measurement, clock_moved
from attnlab.paths.base import first_line
from attnlab.problem import AttentionProblem
from attnlab.roofline import floors
from attnlab.samples import count, screened

# The other clocks: so many wall-clock samples and graph replays of a point, fewer when they would take longer than that.
WALLS = {"quick": 1, "refined": 5}
GRAPHS = {"quick": 3, "refined": 7}
OTHERS_S = 0.05
LONG_CALL_S = 0.02  # beside a call longer than this its launch is nothing: no graph, and no wall time in a quick pass
GRAPH_FREE_SHARE = 0.9  # of the free memory
# A caller that waits longer than this for what the stream and the host took: work ran outside the clock.
OUTSIDE_FACTOR, OUTSIDE_MS = 3.0, 0.5


@dataclass(frozen=True)
class Known:
    """What holds for a path on a problem however often it is visited."""

    first_call_s: float
    errors: dict[str, float]
    standard: dict[str, float]  # the errors of standard attention in the same dtype
    peak_bytes: int


class Bench:
    """Measures on one device."""

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)
            _take_workspaces(device)
        self.facts = device_facts(device)
        self.trials = Trials(device)
        self.timer = make_timer(device)
        self._known: dict[tuple[str, AttentionProblem], Known] = {}
        self._series: dict[tuple[str, AttentionProblem, str], Series] = {}

    def step(
        self,
        problem: AttentionProblem,
        paths: list[str],
        *,
        phase: str,
        stop: Stop,
        check: Check,
        say: Say,
        l2: str = "cold",
    ) -> None:
        """One problem through each path in turn, on the same tensors, each said as a `measurement` whatever became of it.

        A quick visit begins the samples of a path anew, a refined one adds to them. `l2`: "cold" or "hot".

        Raises Cancelled when `check` does, and DeviceLost after the measurement of the path that lost it.
        """
        inputs: tuple[torch.Tensor, ...] | None = None
        exact: Truth | None = None
        for name in paths:
            check()
            say("started", path=name)
            point = Measurement.of(problem, name, "fault", phase=phase)
            try:
                verdict = self.trials.verdict(name, problem, say)
                point = replace(point, provider=verdict.provider)
                if verdict.reason:
                    say(
                        "measurement", measurement=replace(point, status="unsupported", reason=verdict.reason).to_json()
                    )
                    continue
                if inputs is None:
                    inputs = make_inputs(problem, self.device)
                if exact is None and (name, problem) not in self._known:
                    exact = truth(problem, *inputs)
                check()
                call = make_call(verdict.path.build(problem), problem, *inputs)
                compile_s = 0.0
                if verdict.path.compiles and (name, problem) not in self._known:
                    say("compiling", path=name, text=f"compiling {name} for sequence {problem.seq_kv:,}")
                    compile_s = self.timer.timed_call(call)[1]  # apart, or its memory would be in the peak of a call
                say("running", path=name)
                point = self._measure(point, call, exact, stop, check, verdict.seconds + compile_s, l2)
            except torch.OutOfMemoryError as error:
                point = replace(point, status="oom", reason=out_of_memory(error))
            except DeviceLost as lost:
                lost_point = replace(point, reason=f"CUDA fault, worker restarted: {lost}")
                say("measurement", measurement=lost_point.to_json())
                raise
            except Cancelled:
                raise
            except Exception as error:  # a library may raise anything; it is this point's result, not the worker's end
                if device_lost(self.device):
                    lost_point = replace(point, reason=f"CUDA fault, worker restarted: {first_line(error)}")
                    say("measurement", measurement=lost_point.to_json())
                    raise DeviceLost(f"{name}: {first_line(error)}") from None
                status = "oom" if "can't allocate memory" in str(error) else "fault"
                point = replace(point, status=status, reason=f"{name}: {first_line(error)}")
            # The except clauses above have ended: no traceback holds the failed call's tensors any longer.
            call = None
            if point.status in ("oom", "fault"):
                memory.release(self.device)
            say("measurement", measurement=point.to_json())

    def _measure(
        self,
        point: Measurement,
        call: Callable[[], Outputs],
        exact: Truth | None,
        stop: Stop,
        check: Check,
        trial_s: float,
        l2: str,
    ) -> Measurement:
        problem, cuda = point.problem, self.device.type == "cuda"
        l2 = l2 if l2 in self.timer.l2_modes else ""
        series = self._series_of(point, l2)
        used_s, key = series.used_s, (point.path, problem)
        with memory.PeakAbove(self.device) as one_call:
            outputs, seconds = self.timer.timed_call(call)
        if key not in self._known:
            errors, standard = exact.errors(outputs), exact.standard
            del outputs
            check()
            peak = one_call.bytes if cuda else memory.host_peak_bytes(call)
            self._known[key] = Known(trial_s + seconds, errors, standard, peak)
        elif cuda:
            series.walls_ms.append(seconds * 1e3)  # synchronise, call, synchronise: what a wall-clock sample is
        outputs = None
        known = self._known[key]
        check()
        self.timer.sample(series, call, stop, check, l2, floors(problem, self.facts, l2))
        if cuda:
            call_s = median(series.samples_ms) / 1e3
            while len(series.walls_ms) < wall_samples(point.phase, call_s):
                check()
                series.walls_ms.append(self.timer.timed_call(call)[1] * 1e3)
            self._replay(series, call, point.phase, call_s, known.peak_bytes, check, l2)
        point = replace(self._point(point, series, known, l2), in_samples_s=series.used_s - used_s)
        return screened(point, self.facts)

    def _replay(
        self,
        series: Series,
        call: Callable[[], Outputs],
        phase: str,
        call_s: float,
        peak_bytes: int,
        check: Check,
        l2: str,
    ) -> None:
        """The call as a CUDA graph, where that says something and there is room for it: what a call allocates it keeps, and
        while it is captured nothing can be given back to the driver."""
        if call_s >= LONG_CALL_S:
            series.no_graph = f"no CUDA graph: launching is nothing beside a call of {call_s * 1e3:.0f} ms"
        elif peak_bytes < torch.cuda.mem_get_info(self.device)[0] * GRAPH_FREE_SHARE:
            self.timer.graph(series, call, other_samples(GRAPHS[phase], call_s), check, l2)
        elif not series.graphs_ms:
            series.no_graph = "no CUDA graph: no room for what it would keep"

    def _series_of(self, point: Measurement, l2: str) -> Series:
        key = (point.path, point.problem, l2)
        # A host's quick samples may have waited for a browser that was drawing: they are no part of a later visit.
        if point.phase == "quick" or key not in self._series or self.device.type == "cpu":
            self._series[key] = Series()
        return self._series[key]

    def _point(self, point: Measurement, series: Series, known: Known, l2: str) -> Measurement:
        """What was timed and what is known, as a measurement that has not been screened."""
        problem, cuda = point.problem, self.device.type == "cuda"
        device_ms, host_ms = median(series.counting() or series.samples_ms), series.host_ms
        wrong = judge(known.errors, known.standard, problem.dtype) or (
            outside_the_clock(series, device_ms) if cuda else ""
        )
        finite = [error for error in known.errors.values() if error != float("inf")]
        seen = series.conditions
        return replace(
            point,
            status="suspect" if wrong else "ok",
            reason=wrong,
            device_ms=device_ms,
            samples_ms=tuple(series.samples_ms),
            unused=tuple(sorted(series.unused)),
            l2=l2,
            graph_ms=median(series.graphs_ms) if series.graphs_ms else None,
            wall_ms=(median(series.walls_ms) if series.walls_ms else None)
            if cuda
            else device_ms,  # a host has one clock
            host_ms=host_ms,
            first_call_s=known.first_call_s,
            peak_bytes=known.peak_bytes,
            reserved_bytes=torch.cuda.memory_reserved(self.device) if cuda else None,
            device_used_bytes=memory.used_bytes(self.device),
            error=max(finite, default=None),
            standard_error=max(known.standard.values()),
            clock=self.timer.clock(l2),
            memory_source=memory.CUDA_SOURCE if cuda else memory.HOST_SOURCE,
            clock_mhz=seen.clock_mhz,
            clock_mhz_low=seen.clock_mhz_low,
            clock_mhz_high=seen.clock_mhz_high,
            power_w=seen.power_w,
            temperature_c=seen.temperature_c,
            throttle=seen.throttle,
            launch_bound=series.unfilled or (host_ms is not None and host_ms > device_ms),
            notes=tuple(notes(problem, series)),
        )


def outside_the_clock(series: Series, device_ms: float) -> str:
    """One line when a caller waits far longer than stream and host were busy: the call works where no clock looks, on
    another stream without waiting for it. The shortest wait counts; a first one may hold a compilation."""
    if len(series.walls_ms) < 2:
        return ""
    waits_ms, busy_ms = min(series.walls_ms), device_ms + (series.host_ms or 0.0)
    if waits_ms <= OUTSIDE_FACTOR * busy_ms + OUTSIDE_MS:
        return ""
    return (
        f"impossible: a caller waits {waits_ms:.3g} ms, but the stream was busy for {device_ms:.3g} ms; the path works"
        " outside the stream that is timed"
    )


def notes(problem: AttentionProblem, series: Series) -> list[str]:
    """What a reader of the number should know, one line each."""
    lines = []
    if blind := problem.blind_rows:
        lines.append(f"{blind} of {problem.seq_q} query rows see no key; output defined as 0")
    if series.unfilled:
        lines.append("the queue could not be kept full: launch cost is inside device_ms")
    lines += [f"{count(n, 'sample')} kept out: {why}" for why, n in Counter(series.unused.values()).items()]
    seen = series.conditions
    if clock_moved(seen.clock_mhz_low, seen.clock_mhz_high):
        lines.append(
            f"the clock moved between {seen.clock_mhz_low:,.0f} and {seen.clock_mhz_high:,.0f} MHz while it was measured"
        )
    return [*lines, *filter(None, [series.no_graph])]


def other_samples(most: int, call_s: float) -> int:
    """How many samples of a clock beside device_ms a point takes: each costs a call."""
    return min(most, max(1, int(OTHERS_S / max(call_s, 1e-6))))


def wall_samples(phase: str, call_s: float) -> int:
    """How many wall-clock samples a point takes: each costs a call, and that of a long call is its device time."""
    return 0 if phase == "quick" and call_s >= LONG_CALL_S else other_samples(WALLS[phase], call_s)


def out_of_memory(error: torch.OutOfMemoryError) -> str:
    """PyTorch's message carries the size asked for, the free and the total; its first three sentences are the useful ones."""
    sentences = first_line(error).split(". ")
    return ". ".join(sentences[:3]).rstrip(".")


def _take_workspaces(device: torch.device) -> None:
    """Matrix products take a workspace once for each handle and stream, the backward thread's its own; take them now, so
    that no first point's memory holds them."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        a = torch.randn(2, 64, 64, device=device, dtype=dtype, requires_grad=True)
        torch.autograd.grad((a @ a).sum(), a)
    torch.cuda.synchronize(device)
    gc.collect()
