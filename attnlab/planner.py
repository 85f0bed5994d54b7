"""What to measure next in a sweep: a step for the worker, points that are not worth trying, or nothing more.

A quick pass goes from short to long so that the whole curve is there early; then refinement narrows the intervals that
are still too wide. The planner sees what is measured, the time used and the memory free. Of what
was tried it keeps no record of its own, so a step that a dying worker left half done is simply planned again without the
point that is to blame; all it remembers is when the quick pass was over, which bounds the refinement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from attnlab import cost
from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.roofline import pace
from attnlab.sweep import TIME, Sweep
from attnlab.units import seconds, sequence, size

QUICK, REFINED = "quick", "refined"  # the phases

QUICK_SAMPLES = 3
QUICK_BUDGET_S = {"cuda": 0.02, "cpu": 0.03}  # samples of one path; long calls take QUICK_SAMPLES whatever that costs
REFINED_SAMPLES = 10
REFINE_SHARE = 0.08  # of the budget goes to refinement, or as long as the quick pass calculated, whichever is more
OVERHEAD_CALLS = 2  # beside its samples a point takes a first or warm-up call, and one for memory or the wall clock
LONG_CALL_S = 0.02  # launching is nothing beside such a call: one serves all clocks, and it needs no warming up

# For the first point of a path, which has no shorter one to be judged by: rates that nearly every device exceeds, so
# that the prediction is on the long side. Tensors are made at about half the rate that random numbers are drawn at.
CONSERVATIVE_TFLOPS = {"cuda": 20.0, "cpu": 0.02}
MAKING_BYTES_PER_S = {"cuda": 100e9, "cpu": 0.3e9}
WHOLE = ("standard", "compiled", "sdpa-math")  # paths that compute what the mask hides, too
FAR = 16  # more than this many times the FLOPs of the longest point measured is too far for a straight line
# An answer is held to float64 in chunks of the score matrix (attnlab.paths.reference), of which several stand at once. A
# device that runs out of memory there says so; a host is killed.
CHECKED_PAIRS = 1 << 26
CHECKING_BYTES = 6 * 8  # a pair: the scores, their softmax, what becomes of the gradient; all in float64
HOST_SHARE = 0.9  # of the free host memory: the system that runs out of it kills processes


@dataclass(frozen=True, kw_only=True)
class Step:
    """One problem through some paths: what protocol.py's `measure` carries. `predicted_s` is for the whole step."""

    problem: AttentionProblem
    paths: tuple[str, ...]
    phase: str
    budget_s: float
    min_samples: int
    target: float
    predicted_s: float

    @property
    def seq(self) -> int:
        return self.problem.seq_kv


@dataclass(frozen=True)
class Untried:
    """Points that are decided without trying them; their numbers are predictions and stand in fields of their own."""

    measurements: tuple[Measurement, ...]


Points = dict[tuple[str, int], Measurement]


class Planner:
    """What to do next in `sweep` on `device`. Equal measurements, times and bytes give equal plans."""

    def __init__(self, sweep: Sweep, device: Device):
        self.sweep = sweep
        self.device = device
        self.quick_s: float | None = None  # when the quick pass was over

    def next_step(
        self, measurements: Iterable[Measurement], elapsed_s: float, free_bytes: int
    ) -> Step | Untried | None:
        """None: the sweep is done. `elapsed_s` counts from the first step; `free_bytes` is free on the device now."""
        points = {(m.path, m.seq): m for m in measurements}
        for seq in self.sweep.seqs:
            missing = [path for path in self.sweep.paths if (path, seq) not in points]
            if missing:
                return self._quick(self.sweep.at(seq), missing, points, elapsed_s, free_bytes)
        if self.quick_s is None:
            self.quick_s = elapsed_s
        return self._refine(points, elapsed_s) if self.sweep.refine and self.sweep.task == TIME else None

    def _quick(
        self, problem: AttentionProblem, paths: list[str], points: Points, elapsed_s: float, free_bytes: int
    ) -> Step | Untried:
        left_s = self.sweep.budget_s - elapsed_s
        predicted_s = cost.input_bytes(problem) / MAKING_BYTES_PER_S[self.device.kind]
        verdicts, tried = [], []
        for path in paths:
            known = [m for m in points.values() if m.path == path and m.seq < problem.seq_kv]
            call_ms = predict_ms(problem, path, known, self.device.kind)
            point_s = QUICK_SAMPLES * self._sample_s(problem, call_ms) + OVERHEAD_CALLS * call_ms / 1e3
            verdict = self._memory_verdict(problem, path, known, free_bytes)
            refused = any(m.status == "unsupported" for m in known)
            if verdict is not None and self.sweep.try_oom and self.device.kind == "cuda":
                verdict, point_s = None, 0.0  # an allocation that fails costs no time
            elif verdict is None and not refused:  # being refused again costs none either
                verdict = self._time_verdict(problem, path, known, call_ms, point_s, left_s - predicted_s)
            if verdict is None:
                tried.append(path)
                predicted_s += point_s
            else:
                verdicts.append(verdict)
        if verdicts:
            return Untried(tuple(verdicts))
        return Step(
            problem=problem,
            paths=tuple(tried),
            phase=QUICK,
            budget_s=QUICK_BUDGET_S[self.device.kind],
            min_samples=QUICK_SAMPLES,
            target=self.sweep.precision,
            predicted_s=predicted_s,
        )

    def _memory_verdict(
        self, problem: AttentionProblem, path: str, known: list[Measurement], free_bytes: int
    ) -> Measurement | None:
        peak = cost.predicted_peak_bytes(problem, path, self.device.kind)
        inputs = cost.input_bytes(problem) + cost.added_mask_bytes(problem, path, self.device.kind)
        inputs += cost.saved_bytes(problem, path, self.device.kind)
        ran_out = [m.seq for m in known if m.status == "oom" and not m.foreseen]
        on_host = self.device.kind == "cpu"
        usable = int(free_bytes * HOST_SHARE) if on_host else free_bytes
        checking = checking_bytes(problem, self.sweep.task) if on_host else 0
        if ran_out:
            reason = f"predicted, not tried: it ran out of memory at sequence {sequence(min(ran_out))} already"
        elif max(peak, checking) + inputs > usable:
            beside = ["mask"] * problem.masked + ["what the forward pass has saved"] * (not problem.forward)
            needs = f"needs {size(peak)}" if peak >= checking else f"checking the answer needs {size(checking)}"
            what = ", ".join(["inputs", *beside[:-1]]) + "".join(f" and {last}" for last in beside[-1:])
            reason = (
                f"predicted, not tried: {needs} beside {size(inputs)} of {what};"
                f" {size(usable)} of {self.device.memory_name} can be used"
            )
        else:
            return None
        return Measurement.of(problem, path, "oom", reason=reason, predicted_bytes=peak)

    def _time_verdict(
        self,
        problem: AttentionProblem,
        path: str,
        known: list[Measurement],
        call_ms: float,
        point_s: float,
        left_s: float,
    ) -> Measurement | None:
        timed_out = [m.seq for m in known if m.status == "timeout"]
        if timed_out:
            reason = f"not tried: it exceeded the time limit at sequence {sequence(min(timed_out))} already"
        elif point_s > left_s:
            reason = (
                f"predicted {seconds(point_s)} for one point; {seconds(max(left_s, 0))} of the run's"
                f" {seconds(self.sweep.budget_s)} are left for it; raise the budget"
            )
        else:
            return None
        return Measurement.of(problem, path, "skipped", reason=reason, predicted_ms=call_ms)

    def _refine(self, points: Points, elapsed_s: float) -> Step | None:
        """The next visit. Every point gets one while there is time for all; else the dearest give way.

        A card that has just worked hard runs at a lower clock for some tenths of a second, and light work notices. So hard
        work (roofline.pace), which rests between its calls, comes last, from short to long; before it the other, from long
        to short. The samples of the quick pass count on: a visit adds what is missing.
        """
        quick_s = sum(  # without compiling
            QUICK_SAMPLES * self._one_sample_s(m) + OVERHEAD_CALLS * call_ms(m) / 1e3 for m in points.values()
        )
        allowed_s = min(self.sweep.budget_s, self.quick_s + max(REFINE_SHARE * self.sweep.budget_s, quick_s))
        left_s = allowed_s - elapsed_s
        visits = [visit for visit in self._visits(points) if visit]
        visits.sort(key=lambda visit: (self._round_s(visit), visit[0].seq))
        samples = REFINED_SAMPLES
        while visits:
            dearest, cheaper = visits[-1], visits[:-1]
            have = min(m.samples for m in dearest)
            # Those that have more than the fewest need less.
            more_s = sum((m.samples - have) * self._one_sample_s(m) for m in dearest)
            for_it_s = (
                left_s - sum(self._visit_s(m) for visit in cheaper for m in visit) - sum(map(self._beside_s, dearest))
            )
            # A sum may lie just below what it comes to.
            affordable = int((for_it_s + more_s) / self._round_s(dearest) + 1e-6)
            if affordable > 0:
                samples = max(have + 1, min(REFINED_SAMPLES, have + affordable))
                break
            visits.pop()
        else:
            return None
        waiting = [m for visit in visits for m in visit]
        if sum(map(self._visit_s, waiting)) <= left_s:
            needed = [self._missing(m) * self._one_sample_s(m) for m in waiting]
            budget_s = water_level(needed, left_s - sum(map(self._beside_s, waiting)))
        else:
            budget_s = 0.0  # the least number of samples and no more
        light = [visit for visit in visits if not self._hard(visit[0])]
        here = light[-1] if light else visits[0]
        if here is not dearest:
            samples = max(REFINED_SAMPLES, min(m.samples for m in here) + 1)
        return Step(
            problem=here[0].problem,
            paths=tuple(m.path for m in here),
            phase=REFINED,
            budget_s=budget_s,
            min_samples=samples,
            target=self.sweep.precision,
            predicted_s=sum(
                self._beside_s(m) + max(budget_s, max(samples - m.samples, 0) * self._one_sample_s(m)) for m in here
            ),
        )

    def _visits(self, points: Points) -> Iterator[list[Measurement]]:
        """The points to refine, those of one sequence length together, hard work apart."""
        for seq in self.sweep.seqs:
            there = [points[path, seq] for path in self.sweep.paths]
            here = [m for m in there if needs_refining(m, self.sweep.precision, self.device.kind)]
            yield [m for m in here if not self._hard(m)]
            yield [m for m in here if self._hard(m)]

    def _hard(self, m: Measurement) -> bool:
        return pace(m.problem, self.device, m.device_ms) is not None

    def _sample_s(self, problem: AttentionProblem, ms: float) -> float:
        """What a sample costs the run, with its share of a rest."""
        rested = pace(problem, self.device, ms)
        return ms / 1e3 + (rested.share_s if rested else 0.0)

    def _one_sample_s(self, m: Measurement) -> float:
        return self._sample_s(m.problem, call_ms(m))

    def _round_s(self, points: Iterable[Measurement]) -> float:
        """Seconds for one sample of each."""
        return sum(map(self._one_sample_s, points))

    def _missing(self, m: Measurement) -> int:
        """How many samples a refined point has more."""
        return max(REFINED_SAMPLES - m.samples, 1)

    def _visit_s(self, m: Measurement) -> float:
        """What it takes to refine a point."""
        return self._beside_s(m) + self._missing(m) * self._one_sample_s(m)

    def _beside_s(self, m: Measurement) -> float:
        """Of that, what goes by beside the samples."""
        if self.device.kind == "cuda" and call_ms(m) >= LONG_CALL_S * 1e3:
            return 0.0
        return OVERHEAD_CALLS * call_ms(m) / 1e3


def checking_bytes(problem: AttentionProblem, task: str) -> int:
    """What holding an answer to float64 takes at once; next to nothing for O when the time is asked for, of which some rows
    are looked at."""
    if task == TIME and not problem.backward:
        return 0
    return CHECKING_BYTES * min(problem.seq_q * problem.seq_kv, max(CHECKED_PAIRS, problem.seq_kv))


def needs_refining(m: Measurement, precision: float, device_kind: str) -> bool:
    """Whether another visit would help: the quick pass took few samples, or the interval is wide, or the clock moved."""
    if not m.ok or m.phase != QUICK or not m.device_ms:
        return False
    if device_kind == "cpu":  # a host is shared: narrow samples may all have waited for the same other work
        return True
    return m.samples < REFINED_SAMPLES or not sharp(m, precision) or m.clock_moved


def sharp(m: Measurement, precision: float) -> bool:
    """Whether half of its interval is within `precision` of the median."""
    return m.interval_ms is not None and (m.interval_ms[1] - m.interval_ms[0]) / 2 <= precision * m.device_ms


def call_ms(m: Measurement) -> float:
    """What one call costs the run: launching may take longer than computing."""
    return max(m.device_ms or 0.0, m.wall_ms or 0.0)


def predict_ms(problem: AttentionProblem, path: str, known: Iterable[Measurement], device_kind: str) -> float:
    """Milliseconds of one call, from shorter points of the same path; from a conservative rate when there are none.

    What a GPU works grows with the FLOPs; what a caller waits beside it does not, and beside a short point is most of it.
    A straight line in FLOPs through the two longest points leaves the constant cost of a launch out of the slope. It is
    held between half and twice the time in proportion to the FLOPs; below that only where the launch is the cost.
    """
    # A CPU's kernels take a window or lengths as a mask, and compute what it hides.
    on_cpu = device_kind == "cpu" and (problem.window is not None or problem.lengths is not None)
    whole = path in WHOLE or on_cpu
    counted = cost.dense_flops if whole else cost.flops
    flops = counted(problem)
    slow_ms = flops / CONSERVATIVE_TFLOPS[device_kind] / 1e9
    timed = sorted(
        (counted(m.problem), (device_kind == "cuda" and m.device_ms) or call_ms(m), call_ms(m), m.launch_bound)
        for m in known
        if m.status in ("ok", "suspect") and call_ms(m) > 0
    )
    if not timed:
        return slow_ms
    last_flops, last_ms, last_call_ms, launch_bound = timed[-1]
    beside_ms = last_call_ms - last_ms
    proportional_ms = last_ms * flops / last_flops
    if len(timed) == 1 or flops > FAR * last_flops:
        # Where the last point may be all launch and no computing; on a CPU nothing tells.
        overhead = launch_bound or device_kind == "cpu"
        return beside_ms + (max(last_ms, min(proportional_ms, slow_ms)) if overhead else proportional_ms)
    more_flops = last_flops - timed[-2][0]  # none where a window leaves one query the same keys at every length
    slope = max((last_ms - timed[-2][1]) / more_flops, 0.0) if more_flops else 0.0
    lowest_ms = last_ms if launch_bound else proportional_ms / 2
    return beside_ms + min(max(last_ms + slope * (flops - last_flops), lowest_ms), 2 * proportional_ms)


def water_level(needed: Sequence[float], total: float) -> float:
    """The largest b with sum(max(need, b)) <= total, for total >= sum(needed) and at least one need.

    >>> water_level([1.0, 4.0], 8.0)
    4.0
    >>> water_level([1.0, 4.0], 6.0)
    2.0
    """
    needed = sorted(needed)
    for filled in range(len(needed), 1, -1):
        level = (total - sum(needed[filled:])) / filled
        if level >= needed[filled - 1]:
            return level
    return total - sum(needed[1:])
