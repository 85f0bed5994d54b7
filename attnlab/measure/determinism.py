"""Does the same call give the same numbers twice, and what does a promise of that cost?

A kernel that adds up in the order in which its blocks happen to finish rounds differently each time. That is no fault: each
run is as exact as any other. The default mode's spread is reported; a deterministic mode that spreads broke its promise.

Values of a finding, for one output and mode: spread_max_abs (the largest distance of a repeat from the first call),
identical and repeats (so many repeats were equal to the first call bit for bit); on the first output of a mode also
device_ms with device_ms_low and _high (95 % interval of that median) and peak_bytes, of one call in that mode.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from attnlab.finding import Finding, finite
from attnlab.interval import median_interval
from attnlab.measure import memory
from attnlab.measure.inputs import Call, make_call, make_inputs
from attnlab.measure.series import Series, Stop
from attnlab.measure.timing import Check, Timer
from attnlab.measure.trial import Verdict
from attnlab.paths.base import first_line
from attnlab.problem import AttentionProblem

REPEATS = 10
DEFAULT, DETERMINISTIC = MODES = ("default", "deterministic")
ROUNDS, ROUND_S = 4, 0.05  # of samples for the cost, the modes by turns: other work on the device then falls on both


@dataclass(frozen=True)
class Repeated:
    """What REPEATS calls gave beside the first, by output, and what times the call in that mode."""

    call: Call
    apart: list[float]
    identical: list[int]
    peak_bytes: int
    series: Series


class Determinism:
    """One problem, the same inputs for all paths and modes."""

    def __init__(self, problem: AttentionProblem, device: torch.device, timer: Timer, check: Check):
        self.problem, self.device, self.timer, self.check = problem, device, timer, check
        self.inputs = make_inputs(problem, device)

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        modes = {DEFAULT: self._repeat(verdict, DEFAULT)}
        refusal = ""
        try:
            modes[DETERMINISTIC] = self._repeat(verdict, DETERMINISTIC)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what PyTorch raises where an operation has no deterministic form
            refusal = first_line(error)
        for _ in range(ROUNDS):
            for mode, repeated in modes.items():
                with deterministic(mode == DETERMINISTIC):
                    stop, l2 = Stop(ROUND_S, 3, 0.0), self.timer.l2_modes[0]
                    self.timer.sample(repeated.series, repeated.call.launch, stop, self.check, l2, ())
        for mode, repeated in modes.items():
            yield from self._findings(mode, repeated)
        if refusal:
            yield Finding(what="all", verdict="unsupported", mode=DETERMINISTIC, text=refusal)

    def _repeat(self, verdict: Verdict, mode: str) -> Repeated:
        with deterministic(mode == DETERMINISTIC):
            path = copy.copy(verdict.path)
            path.deterministic = mode == DETERMINISTIC
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
            peak = one_call.bytes if self.device.type == "cuda" else memory.host_peak(call.launch)[0]
        return Repeated(call, apart, identical, peak, Series())

    def _findings(self, mode: str, repeated: Repeated) -> Iterator[Finding]:
        middle, low, high = median_interval(repeated.series.counting() or repeated.series.samples_ms)
        cost = {"device_ms": middle, "device_ms_low": low, "device_ms_high": high, "peak_bytes": repeated.peak_bytes}
        for i, output in enumerate(self.problem.outputs):
            identical = repeated.identical[i]
            values = {"spread_max_abs": finite(repeated.apart[i]), "identical": identical, "repeats": REPEATS}
            values |= cost if i == 0 else {}
            broken = mode == DETERMINISTIC and identical < REPEATS
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
