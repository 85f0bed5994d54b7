"""What a call is made of: each operation of standard attention apart, and flash as the one kernel that it is.

Each operation is a call of its own on what the one before it left, timed as every call is; its kernels are read from the
profiler. What it should move is counted (cost.standard_steps), so that a rate can be told: bytes over time.

Values of a finding: device_ms (median), read_bytes and write_bytes (counted), kernels (how many were launched; None where
the profiler may not look). `text` names the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

import torch

from attnlab import cost
from attnlab.finding import Finding
from attnlab.measure.inputs import Outputs, make_call, make_inputs
from attnlab.measure.kernels import main_kernel, names
from attnlab.measure.series import Series, Stop
from attnlab.measure.timing import Check, Timer
from attnlab.measure.trial import Verdict
from attnlab.paths.base import Path, hidden_pairs
from attnlab.problem import FORWARD, AttentionProblem

SAMPLES_S = 0.1  # of one operation
SAMPLES = 5
KERNEL = "kernel"  # what a path is called that is one operation


@dataclass(frozen=True)
class Operation:
    """One line of work: calling it does it, on what the one before it left. The bytes are counted, not measured."""

    what: str
    call: Callable[[], torch.Tensor | Outputs]
    read_bytes: int
    write_bytes: int


@torch.no_grad()
def operations(path: Path, problem: AttentionProblem, inputs: tuple[torch.Tensor | None, ...]) -> Iterator[Operation]:
    """What a forward pass is made of, in order: of `standard` its lines, of another path the one call. Asked for the next
    one, it does the one before it."""
    if path.name != "standard":
        call = make_call(path.build(problem), problem, *inputs)
        yield Operation(KERNEL, call.launch, cost.min_read_bytes(problem), cost.min_write_bytes(problem))
        return
    moved = {operation.name: operation for operation in cost.standard_operations(problem)}
    last: list[torch.Tensor] = []
    for what, call in _standard(problem, inputs, last):
        yield Operation(what, call, moved[what].read_bytes, moved[what].write_bytes)
        last[:] = [call()]


def _standard(
    problem: AttentionProblem, inputs: tuple[torch.Tensor | None, ...], last: list[torch.Tensor]
) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """The lines of paths/standard.py; each takes `last[0]`, what the one before it gave."""
    q, k, v = (t.transpose(1, 2) for t in inputs[:3])
    group = problem.heads // problem.kv_heads
    if group > 1:
        yield "K and V for each query head", lambda: torch.cat([t.repeat_interleave(group, dim=1) for t in (k, v)])
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    yield "QKᵀ", lambda: q @ k.transpose(-2, -1)
    yield "scale", lambda: last[0] * (1 / math.sqrt(problem.head_dim))
    if problem.masked:
        mask = hidden_pairs(problem, q.device)
        mask[: problem.blind_rows] = False
        yield "mask", lambda: last[0].masked_fill(mask, -torch.inf)
    yield "softmax", lambda: torch.softmax(last[0], dim=-1)
    yield "AV", lambda: last[0] @ v


def forward_of(problem: AttentionProblem) -> AttentionProblem:
    """The problem that is taken apart."""
    return replace(problem, direction=FORWARD, lengths=None)


class Anatomy:
    """The forward pass of one problem, on one set of tensors."""

    def __init__(self, problem: AttentionProblem, device: torch.device, timer: Timer, check: Check):
        self.problem, self.device, self.timer, self.check = forward_of(problem), device, timer, check
        self.inputs = make_inputs(self.problem, device)

    @torch.no_grad()
    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        """For `standard` one finding for each operation and two for the layout; for another path one for all of it."""
        for operation in operations(verdict.path, self.problem, self.inputs):
            self.check()
            yield self._finding(operation)
        if name == "standard":
            q, size = self.inputs[0], cost.query_bytes(self.problem)
            text = "a view: shape and strides change, no byte moves"
            values = {"device_ms": 0.0, "read_bytes": 0, "write_bytes": 0, "kernels": 0}
            yield Finding(what="transpose of Q", verdict="pass", text=text, values=values)
            yield self._finding(Operation("contiguous Q", lambda: q.transpose(1, 2).contiguous(), size, size))

    def _finding(self, operation: Operation) -> Finding:
        call = operation.call
        call()
        ran = names(call, self.device)
        series, l2 = Series(), self.timer.l2_modes[0]
        self.timer.sample(series, call, Stop(SAMPLES_S, SAMPLES, 0.01), self.check, l2, ())
        values = {
            "device_ms": median(series.counting() or series.samples_ms),
            "read_bytes": operation.read_bytes,
            "write_bytes": operation.write_bytes,
            "kernels": len(ran) or None,
        }
        text = " + ".join(ran) or main_kernel(call, self.device)
        return Finding(what=operation.what, verdict="pass", text=text, values=values)
