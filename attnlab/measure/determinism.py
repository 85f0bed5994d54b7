"""Does the same call give the same numbers twice, and what does a promise of that cost?

A kernel that adds up in the order in which its blocks happen to finish rounds differently each time. That is no fault: each
run is as exact as any other. The default mode's spread is reported; a deterministic mode that spreads broke its promise.

Values of a finding, for one output and mode: spread_max_abs (the largest distance of a repeat from the first call),
identical and repeats (so many repeats were equal to the first call bit for bit); on the first output of a mode also
device_ms and peak_bytes (of one call in that mode).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from statistics import median

import torch

from attnlab.finding import Finding, finite
from attnlab.measure import memory
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.timing import Check, Series, Stop, Timer
from attnlab.measure.trial import Verdict
from attnlab.paths.base import first_line
from attnlab.problem import AttentionProblem

REPEATS = 10
DEFAULT, DETERMINISTIC = MODES = ("default", "deterministic")
COST_S = 0.1  # of samples for the cost of a mode


class Determinism:
    """One problem, the same inputs for all paths and modes."""

    def __init__(self, problem: AttentionProblem, device: torch.device, timer: Timer, check: Check):
        self.problem, self.device, self.timer, self.check = problem, device, timer, check
        self.inputs = make_inputs(problem, device)

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        for mode in MODES:
            try:
                yield from self._mode(verdict, mode)
            except RuntimeError as error:  # what PyTorch raises where an operation has no deterministic form
                if mode == DEFAULT or isinstance(error, torch.OutOfMemoryError):
                    raise
                yield Finding(what="all", verdict="unsupported", mode=mode, text=first_line(error))

    def _mode(self, verdict: Verdict, mode: str) -> Iterator[Finding]:
        promised = mode == DETERMINISTIC
        with deterministic(promised):
            path = copy.copy(verdict.path)
            path.deterministic = promised
            call = make_call(path.build(self.problem), self.problem, *self.inputs)
            with memory.PeakAbove(self.device) as one_call:
                call.launch()
            first = call()
            apart, identical = [0.0] * len(first), [0] * len(first)
            for _ in range(REPEATS):
                self.check()
                for i, (again, before) in enumerate(zip(call(), first, strict=True)):
                    identical[i] += torch.equal(again, before)
                    apart[i] = max(apart[i], (again.double() - before.double()).abs().max().item())
            series = Series()
            l2 = self.timer.l2_modes[0]
            self.timer.sample(series, call.launch, Stop(COST_S, 3, 0.01), self.check, l2, ())
        peak = one_call.bytes if self.device.type == "cuda" else memory.host_peak(call.launch)[0]
        cost = {"device_ms": median(series.counting() or series.samples_ms), "peak_bytes": peak}
        for i, output in enumerate(self.problem.outputs):
            values = {"spread_max_abs": finite(apart[i]), "identical": identical[i], "repeats": REPEATS}
            values |= cost if i == 0 else {}
            broken = promised and identical[i] < REPEATS
            text = "the promise of equal repeats was not kept" if broken else ""
            yield Finding(what=output, verdict="fail" if broken else "pass", mode=mode, text=text, values=values)


@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """PyTorch's global switch while the calls run, and as it was before afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
