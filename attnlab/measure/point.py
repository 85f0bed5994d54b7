"""One point: one path on one problem → one Measurement, whatever happens.

The order: a trial launch (can it run at all?), the first call on the real tensors (timed apart, its outputs checked
against float64), the samples, and the memory that one call takes. What cannot change between two visits of a problem,
its answer and its peak, is worked out once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from attnlab.measure import memory
from attnlab.measure.accuracy import Truth, judge, truth
from attnlab.measure.inputs import Outputs, make_call, make_inputs
from attnlab.measure.interval import median_interval
from attnlab.measure.timing import Cancelled, Check, Stop, make_timer
from attnlab.measure.trial import DeviceLost, Say, Trials, device_lost
from attnlab.measurement import Measurement
from attnlab.paths.base import blind_rows, first_line
from attnlab.problem import AttentionProblem

WALLS = {"quick": 1, "refined": 5}  # wall-clock samples of a point
WALLS_S = 0.05  # fewer when they would take longer than this
LONG_CALL_S = 0.02  # a quick pass takes none of a call longer than this, whose wall time is its device time


@dataclass(frozen=True)
class Known:
    """What holds for a path on a problem however often it is visited."""

    first_call_s: float
    errors: dict[str, float]
    peak_bytes: int


class Bench:
    """Measures on one device."""

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.set_device(device)
            _take_workspaces(device)
        self.trials = Trials(device)
        self.timer = make_timer(device)
        self._known: dict[tuple[str, AttentionProblem], Known] = {}

    def step(
        self, problem: AttentionProblem, paths: list[str], *, phase: str, stop: Stop, check: Check, say: Say
    ) -> None:
        """One problem through each path in turn, on the same tensors, each said as a `measurement` whatever became of it.

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
                say("running", path=name)
                if inputs is None:
                    inputs = make_inputs(problem, self.device)
                if exact is None and (name, problem) not in self._known:
                    exact = truth(problem, *inputs)
                check()
                call = make_call(verdict.path.build(problem), problem, *inputs)
                point = self._measure(point, call, exact, stop, check, verdict.seconds)
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
    ) -> Measurement:
        problem, cuda = point.problem, self.device.type == "cuda"
        key = (point.path, problem)
        with memory.PeakAbove(self.device) as one_call:
            outputs, seconds = self.timer.timed_call(call)
        if key not in self._known:
            errors = exact.errors(outputs) if exact is not None else {}
            del outputs
            check()
            peak = one_call.bytes if cuda else memory.host_peak_bytes(call)
            self._known[key] = Known(trial_s + seconds, errors, peak)
        outputs = None
        known = self._known[key]
        check()
        timing = self.timer.sample(call, stop, check, wall_samples(point.phase, seconds))
        middle, low, high = median_interval(timing.samples_ms)
        wrong = judge(known.errors, problem.dtype)
        finite = [error for error in known.errors.values() if error != float("inf")]
        notes = list(timing.notes)
        if blind := blind_rows(problem):
            notes.append(f"{blind} of {problem.seq_q} query rows see no key; output defined as 0")
        return replace(
            point,
            status="suspect" if wrong else "ok",
            reason=wrong,
            device_ms=middle,
            device_ms_low=low,
            device_ms_high=high,
            samples=len(timing.samples_ms),
            samples_ms=timing.samples_ms,
            wall_ms=timing.wall_ms,
            host_ms=timing.host_ms,
            first_call_s=known.first_call_s,
            peak_bytes=known.peak_bytes,
            reserved_bytes=torch.cuda.memory_reserved(self.device) if cuda else None,
            device_used_bytes=memory.used_bytes(self.device),
            error=max(finite, default=None),
            clock=timing.clock,
            memory_source=memory.CUDA_SOURCE if cuda else memory.HOST_SOURCE,
            clock_mhz=timing.reading and timing.reading.clock_mhz,
            power_w=timing.reading and timing.reading.power_w,
            temperature_c=timing.reading and timing.reading.temperature_c,
            launch_bound=timing.launch_bound,
            notes=tuple(notes),
            in_samples_s=timing.in_samples_s,
        )


def wall_samples(phase: str, call_s: float) -> int:
    """How many wall-clock samples a point takes: each costs a call, and that of a long call is its device time."""
    if phase == "quick" and call_s >= LONG_CALL_S:
        return 0
    return min(WALLS[phase], max(1, int(WALLS_S / call_s)))


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
