"""One point: one path on one problem → one Measurement, whatever happens.

The order: a trial launch (can it run at all?), the first call on the real tensors (timed apart, its outputs checked
against float64), the samples, and the memory that one call takes. What cannot change between two visits of a problem,
its answer and its peak, is worked out once; samples of a later visit join those of the first.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TypeVar

import torch

from attnlab.measure import memory
from attnlab.measure.accuracy import Truth, judge, truth
from attnlab.measure.examine import REFUSABLE, Look, examiner
from attnlab.measure.facts import device_facts
from attnlab.measure.inputs import Call, Outputs, make_call, make_inputs
from attnlab.measure.kernels import Ran
from attnlab.measure.series import Series, Stop
from attnlab.measure.timing import Cancelled, Check, make_timer
from attnlab.measure.trial import DeviceLost, Say, Trials, Verdict, device_fault
from attnlab.measurement import Measurement, clock_moved
from attnlab.paths.base import first_line
from attnlab.planner import LONG_CALL_S
from attnlab.problem import BACKWARD, AttentionProblem
from attnlab.roofline import floors, pace
from attnlab.samples import count, screened

# The other clocks: so many wall-clock samples and graph replays of a point, fewer when they would take longer than that.
WALLS = {"quick": 1, "refined": 5}
GRAPHS = {"quick": 3, "refined": 7}
OTHERS_S = 0.05
GRAPH_FREE_SHARE = 0.9  # of the free memory
# A caller that waits longer than this for what the stream and the host took: work ran outside the clock.
OUTSIDE_FACTOR, OUTSIDE_MS = 3.0, 0.5


POINTS_KEPT = 4096  # between its quick and its refined visit; one that is forgotten begins anew

Key, Value = TypeVar("Key"), TypeVar("Value")
Work = Callable[[Measurement, Verdict], Measurement]  # a point to be filled in, and whether its path can run


@dataclass(frozen=True)
class Known:
    """What holds for a path on a problem however often it is visited."""

    first_call_s: float
    errors: dict[str, float]
    standard: dict[str, float]  # the errors of standard attention in the same dtype
    peak_bytes: int
    kernel: str  # in which it spends most of its time; "" where the profiler may not look


class Newest(dict[Key, Value]):
    """A dict that forgets its oldest entry when it would hold more than `most`: a worker lives for days."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self.most:
            del self[next(iter(self))]


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
        self._known: Newest[tuple[str, AttentionProblem], Known] = Newest(POINTS_KEPT)
        self._series: Newest[tuple[str, AttentionProblem, str], Series] = Newest(POINTS_KEPT)

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

        def work(point: Measurement, verdict: Verdict) -> Measurement:
            nonlocal inputs, exact
            name = point.path
            if verdict.reason:
                return replace(point, status="unsupported", reason=verdict.reason)
            if inputs is None:
                inputs = make_inputs(problem, self.device)
            if exact is None and (name, problem) not in self._known:
                exact = truth(problem, *inputs)
            check()
            call = make_call(verdict.path.build(problem), problem, *inputs)
            compile_s = 0.0
            if verdict.path.compiles and (name, problem) not in self._known:
                say("compiling", path=name, text=f"compiling {name} for sequence {problem.seq_kv:,}")
                compile_s = self.timer.timed_call(call.launch)[1]  # apart, or its memory would be in the peak of a call
            say("running", path=name)
            m = self._measure(point, call, exact, stop, check, verdict.seconds + compile_s, l2)
            kernel = self._known[name, problem].kernel  # at this size; the trial's may be another
            return replace(m, provider=f"{verdict.path.provider} · {kernel}") if kernel else m

        def forget() -> None:
            nonlocal inputs, exact
            inputs = exact = None

        self._each(problem, paths, self._with_room(work, forget), phase=phase, check=check, say=say)

    def examine(self, problem: AttentionProblem, paths: list[str], *, task: str, check: Check, say: Say) -> None:
        """A look at the answers of each path (attnlab.finding), said as a `measurement`; raises as `step` does.

        A path with a finding that failed is `suspect`, and the first of them its reason.
        """
        look: Look | None = None

        def work(point: Measurement, verdict: Verdict) -> Measurement:
            nonlocal look
            if verdict.reason and task in REFUSABLE:
                return replace(point, status="unsupported", reason=verdict.reason)
            look = look or examiner(task, problem, self.trials, self.timer, check)
            compiles = verdict.path.compiles or task == "counters"
            say("compiling" if compiles else "running", path=point.path, text=f"{task} of {point.path}")
            findings = tuple(look(point.path, verdict))
            failed = [finding for finding in findings if finding.failed]
            reason = f"{task}: {failed[0].what} {failed[0].text}" if failed else ""
            return replace(point, status="suspect" if failed else "ok", reason=reason, findings=findings)

        def forget() -> None:
            nonlocal look
            look = None

        self._each(problem, paths, self._with_room(work, forget), phase="quick", check=check, say=say)

    def _with_room(self, work: Work, forget: Callable[[], None]) -> Work:
        """`work`, tried once more when memory runs out, after `forget` and with nothing in store: what the allocator keeps
        of earlier problems lies in pieces that may be in the way. So the verdict does not depend on what was measured
        before."""

        def in_an_empty_device(point: Measurement, verdict: Verdict) -> Measurement:
            with contextlib.suppress(torch.OutOfMemoryError):  # behind it no traceback holds the tensors any longer
                return work(point, verdict)
            forget()
            memory.release(self.device)
            return work(point, verdict)

        return in_an_empty_device

    def _each(
        self, problem: AttentionProblem, paths: list[str], work: Work, *, phase: str, check: Check, say: Say
    ) -> None:
        """Each path's `work` on the problem, said as a `measurement` whatever became of it."""
        for name in paths:
            check()
            say("started", path=name)
            point = Measurement.of(problem, name, "fault", phase=phase)
            try:
                verdict = self.trials.verdict(name, problem, say)
                point = replace(point, provider=verdict.provider)
                point = work(point, verdict)
                if self.device.type == "cuda":  # a fault on another stream is this path's, and not the next one's
                    torch.cuda.synchronize(self.device)
            except torch.OutOfMemoryError as error:
                point = replace(point, status="oom", reason=out_of_memory(error))
            except DeviceLost as lost:
                lost_point = replace(point, reason=f"CUDA fault, worker restarted: {lost}")
                say("measurement", measurement=lost_point.to_json())
                raise
            except Cancelled:
                raise
            except Exception as error:  # a library may raise anything; it is this point's result, not the worker's end
                if fault := device_fault(self.device):
                    lost_point = replace(point, reason=f"CUDA fault, worker restarted: {fault}")
                    say("measurement", measurement=lost_point.to_json())
                    raise DeviceLost(f"{name}: {fault}") from None
                status = "oom" if "can't allocate memory" in str(error) else "fault"
                point = replace(point, status=status, reason=f"{name}: {first_line(error)}")
            # The except clauses above have ended: no traceback holds the failed call's tensors any longer.
            if point.status in ("oom", "fault"):
                memory.release(self.device)
            say("measurement", measurement=point.to_json())

    def _measure(
        self,
        point: Measurement,
        call: Call,
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
        launch = call.launch
        if key not in self._known:
            watched = Ran() if cuda else contextlib.nullcontext(Ran())
            with watched as ran, memory.PeakAbove(self.device) as one_call:
                outputs, seconds = self.timer.timed_call(launch)
            errors, standard = exact.errors(call.answer(outputs)), exact.standard
            outputs = None
            series.pace = pace(problem, self.facts, seconds * 1e3)  # none for a call that compiled: it took too long
            check()
            peak, kernel = (one_call.bytes, ran.main) if cuda else memory.host_peak(launch)
            self._known[key] = Known(trial_s + seconds, errors, standard, peak, kernel)
        elif cuda and series.samples_ms and median(series.samples_ms) >= LONG_CALL_S * 1e3:
            self.timer.long_call(series, launch, l2)
        else:
            warm_up_s = self.timer.timed_call(launch)[1]
            series.walls_ms += [warm_up_s * 1e3] if cuda else []  # synchronise, call, synchronise: a wall-clock sample
        known = self._known[key]
        check()
        limits, pace_of = floors(problem, self.facts, l2), partial(pace, problem, self.facts)
        self.timer.sample(series, launch, stop, check, l2, limits, pace_of)
        if cuda:
            call_s = median(series.samples_ms) / 1e3
            while len(series.walls_ms) < wall_samples(point.phase, call_s):
                check()
                self.timer.rest(series)
                series.walls_ms.append(self.timer.timed_call(launch)[1] * 1e3)
            self._replay(series, launch, point, call_s, known.peak_bytes, check, l2)
        point = replace(self._point(point, series, known, l2), in_samples_s=series.used_s - used_s)
        return screened(point, self.facts)

    def _replay(
        self,
        series: Series,
        launch: Callable[[], Outputs],
        point: Measurement,
        call_s: float,
        peak_bytes: int,
        check: Check,
        l2: str,
    ) -> None:
        """The call as a CUDA graph, where that says something and there is room for it: what a call allocates it keeps, and
        while it is captured nothing can be given back to the driver."""
        if point.problem.direction == BACKWARD:  # autograd works on the forward pass's stream, not on the one captured
            series.no_graph = "no CUDA graph: the forward pass behind this call ran outside it"
        elif call_s >= LONG_CALL_S:
            series.no_graph = f"no CUDA graph: launching is nothing beside a call of {call_s * 1e3:.0f} ms"
        elif peak_bytes < torch.cuda.mem_get_info(self.device)[0] * GRAPH_FREE_SHARE:
            self.timer.graph(series, launch, other_samples(GRAPHS[point.phase], call_s), check, l2)
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
    if problem.lengths is not None:
        places = problem.batch * problem.seq_q
        padding = places - problem.tokens
        lines.append(f"{padding} of {places} query rows are padding; output 0, no part of the work counted")
    if series.unfilled:
        lines.append("the queue could not be kept full: launch cost is inside device_ms")
    if series.pace is not None:
        lines.append(
            f"hard work, measured with a rest of {series.pace.rest_s * 1e3:.0f} ms before"
            f" {'each call' if series.pace.calls == 1 else f'every {series.pace.calls} calls'}, so that the card's power limit"
            " does not slow it; without rests it may take longer"
        )
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
