"""What a call is made of: each operation of standard attention apart, and flash as the one kernel that it is.

Each operation is a call of its own on what the one before it left, timed as every call is; its kernels are read from the
profiler. What it should move is counted (cost.standard_steps), so that a rate can be told: bytes over time.

Values of a finding: device_ms (median), read_bytes and write_bytes (counted), kernels (how many were launched; None where
the profiler may not look). `text` names the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

import torch

from attnlab import cost
from attnlab.finding import Finding
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.kernels import main_kernel, names
from attnlab.measure.timing import Check, Series, Stop, Timer
from attnlab.measure.trial import Verdict
from attnlab.paths.base import hidden_pairs
from attnlab.problem import FORWARD, AttentionProblem

SAMPLES_S = 0.1  # of one operation
SAMPLES = 5


class Anatomy:
    """The forward pass of one problem, on one set of tensors."""

    def __init__(self, problem: AttentionProblem, device: torch.device, timer: Timer, check: Check):
        self.problem = replace(problem, direction=FORWARD, lengths=None)
        self.device, self.timer, self.check = device, timer, check
        self.inputs = make_inputs(self.problem, device)

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        """For `standard` one finding for each operation and two for the layout; for another path one for all of it."""
        if name == "standard":
            yield from self._standard()
            return
        call = make_call(verdict.path.build(self.problem), self.problem, *self.inputs)
        yield self._finding(
            "kernel", call.launch, cost.min_read_bytes(self.problem), cost.min_write_bytes(self.problem)
        )

    @torch.no_grad()
    def _standard(self) -> Iterator[Finding]:
        moved = {operation.name: operation for operation in cost.standard_operations(self.problem)}
        result: dict[str, torch.Tensor] = {}
        for what, operation in self._operations(result):
            self.check()
            yield self._finding(what, operation, moved[what].read_bytes, moved[what].write_bytes)
            result["last"] = operation()
        result.clear()
        q, size = self.inputs[0], cost.query_bytes(self.problem)
        text = "a view: shape and strides change, no byte moves"
        values = {"device_ms": 0.0, "read_bytes": 0, "write_bytes": 0, "kernels": 0}
        yield Finding(what="transpose of Q", verdict="pass", text=text, values=values)
        yield self._finding("contiguous Q", lambda: q.transpose(1, 2).contiguous(), size, size)

    def _operations(self, result: dict[str, torch.Tensor]) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
        """The lines of paths/standard.py; each takes `result["last"]`, what the one before it gave."""
        q, k, v = (t.transpose(1, 2) for t in self.inputs[:3])
        group = self.problem.heads // self.problem.kv_heads
        if group > 1:
            yield "K and V for each query head", lambda: torch.cat([t.repeat_interleave(group, dim=1) for t in (k, v)])
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        yield "QKᵀ", lambda: q @ k.transpose(-2, -1)
        yield "scale", lambda: result["last"] * (1 / math.sqrt(self.problem.head_dim))
        if self.problem.masked:
            mask = hidden_pairs(self.problem, self.device)
            mask[: self.problem.blind_rows] = False
            yield "mask", lambda: result["last"].masked_fill(mask, -torch.inf)
        yield "softmax", lambda: torch.softmax(result["last"], dim=-1)
        yield "AV", lambda: result["last"] @ v

    def _finding(self, what: str, call: Callable[[], object], read_bytes: int, write_bytes: int) -> Finding:
        call()
        ran = names(call, self.device)
        series, l2 = Series(), self.timer.l2_modes[0]
        self.timer.sample(series, call, Stop(SAMPLES_S, SAMPLES, 0.01), self.check, l2, ())
        values = {
            "device_ms": median(series.counting() or series.samples_ms),
            "read_bytes": read_bytes,
            "write_bytes": write_bytes,
            "kernels": len(ran) or None,
        }
        text = " + ".join(ran) or main_kernel(call, self.device)
        return Finding(what=what, verdict="pass", text=text, values=values)
