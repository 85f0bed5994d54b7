"""How far is each output of a path from the truth, and is that more than its dtype explains?

The truth is the float64 reference (attnlab/paths/reference.py) on the very same inputs. The rule is that of
flash-attention's own tests, on two measures at once: the relative error (Frobenius) and the largest absolute one of each
output may be twice that of standard attention in the same dtype plus a small floor. For the largest one the floor is the
dtype's spacing at the largest number of the output: two sums that are rounded once may differ by that. A number that is
not finite never passes. With each check goes a control that must fail: the same path with a softmax scale that is 10 % off.

Values of a finding, for one output: max_abs, relative (errors of the path), standard_max_abs, standard_relative (of
standard attention in this dtype), bound_max_abs, bound_relative (what is allowed), nonfinite (numbers that are not
finite), compared (numbers that were compared), of (all numbers of that output), reference_bits (64, or 32 where the truth
was worked out in strict float32).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from attnlab.finding import Finding, finite
from attnlab.measure.inputs import Outputs, make_call, make_inputs
from attnlab.measure.timing import Check
from attnlab.measure.trial import Verdict
from attnlab.paths.base import Attention
from attnlab.paths.reference import Group, attend, picked
from attnlab.problem import AttentionProblem

FACTOR, FLOOR = 2, 1e-5
CONTROL_SCALE = 1.1
FAST_FLOAT64 = (6, 7, 8, 9, 10)  # major compute capabilities whose x.0 chips run float64 at half the rate of float32
PAIRS = {"cuda": 1 << 33, "cpu": 1 << 26}  # query-key pairs worked out in float64, about a second; one group at least
MOST_GROUPS = 256  # each costs some launches, however small it is


@dataclass(frozen=True)
class Errors:
    """Of one output against the truth, over what was compared. `first_bad` is an index into the whole output."""

    max_abs: float
    relative: float
    nonfinite: int


class Exactness:
    """One problem; the truth is worked out once for all paths. `look` gives the findings for one of them."""

    def __init__(self, problem: AttentionProblem, device: torch.device, check: Check):
        self.problem, self.check = problem, check
        self.inputs = make_inputs(problem, device)
        self.groups = sampled_groups(problem, PAIRS[device.type])
        self.exact = truth_dtype(problem, device)
        check()
        self.truth = attend(problem, *self.inputs, self.groups, dtype=self.exact)
        check()
        rounded = attend(problem, *self.inputs, self.groups, dtype=getattr(torch, problem.dtype))
        self.standard = {name: errors(rounded[name], exact) for name, exact in self.truth.items()}

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        """One finding for each output, then the control."""
        yield from self.outputs(verdict)
        self.check()
        yield self._control(verdict.path.build(self.problem))

    def outputs(self, verdict: Verdict) -> Iterator[Finding]:
        """One finding for each output."""
        outputs = make_call(verdict.path.build(self.problem), self.problem, *self.inputs)()
        self.check()
        for output, found in self._errors(outputs).items():
            yield self._finding(output, found, outputs)

    def _errors(self, outputs: Outputs) -> dict[str, Errors]:
        return {
            name: errors(picked(self.problem, name, output, self.groups), self.truth[name])
            for name, output in zip(self.truth, outputs, strict=True)
        }

    def valid(self, output: str) -> int:
        """How many numbers are compared: those of the groups, padding left out."""
        whole, lengths = self.truth[output].numel(), self.problem.lengths
        if lengths is None:
            return whole
        rows = sum(lengths[b] for b, _ in self.groups)
        return whole * rows // (len(self.groups) * self.problem.seq_kv)

    def bounds(self, output: str) -> tuple[float, float]:
        """(max_abs, relative) that the dtype explains."""
        standard = self.standard[output]
        largest = self.truth[output].abs().max().item()
        spacing = torch.finfo(getattr(torch, self.problem.dtype)).eps * largest
        return FACTOR * standard.max_abs + spacing + FLOOR, FACTOR * standard.relative + FLOOR

    def passes(self, output: str, found: Errors) -> bool:
        most_abs, most_relative = self.bounds(output)
        return found.nonfinite == 0 and found.max_abs <= most_abs and found.relative <= most_relative

    def _finding(self, output: str, found: Errors, outputs: Outputs) -> Finding:
        most_abs, most_relative = self.bounds(output)
        whole = outputs[self.problem.outputs.index(output)]
        good, text = self.passes(output, found), ""
        if not good:
            where = self._first_bad(output, whole, most_abs)
            what = f"holds {found.nonfinite:,} numbers that are not finite" if found.nonfinite else (
                f"is {found.max_abs:.1e} away from the truth at most and {found.relative:.1e} relative; {self.problem.dtype}"
                f" explains {most_abs:.1e} and {most_relative:.1e}"
            )  # fmt: skip
            text = what + (f"; first at {where}" if where else "")
        standard = self.standard[output]
        values = {
            "max_abs": finite(found.max_abs), "relative": finite(found.relative), "nonfinite": found.nonfinite,
            "standard_max_abs": finite(standard.max_abs), "standard_relative": finite(standard.relative),
            "bound_max_abs": finite(most_abs), "bound_relative": finite(most_relative),
            "compared": self.valid(output), "of": whole.numel(), "reference_bits": torch.finfo(self.exact).bits,
        }  # fmt: skip
        return Finding(what=output, verdict="pass" if good else "fail", text=text, values=values)

    def _first_bad(self, output: str, whole: torch.Tensor, most_abs: float) -> str:
        """Where the first number stands that is not finite or too far away, as (batch, seq, head, dim)."""
        answer = picked(self.problem, output, whole, self.groups)
        bad = ~((answer - self.truth[output]).abs() <= most_abs)
        if not bad.any():
            return ""
        group, seq, *rest = bad.nonzero()[0].tolist()
        (b, kv_head), n = self.groups[group], self.problem.heads // self.problem.kv_heads
        head = kv_head * n + rest[0] if len(rest) == 2 else kv_head
        return f"(batch {b}, seq {seq}, head {head}, dim {rest[-1]})"

    def _control(self, attention: Attention) -> Finding:
        """The path with a wrong scale, which is what Q times CONTROL_SCALE comes to."""
        what = f"control: scale × {CONTROL_SCALE:g}"
        if self.problem.seq_kv == 1 or self.problem.window == 1:
            return Finding(
                what=what, verdict="unsupported", text="a row that sees one key alone takes no notice of a scale"
            )
        q, k, v, grad_out = self.inputs
        with torch.no_grad():
            scaled = q * CONTROL_SCALE
        scaled.requires_grad_(q.requires_grad)
        found = self._errors(make_call(attention, self.problem, scaled, k, v, grad_out)())
        worst = max(found.values(), key=lambda e: e.relative)
        noticed = not all(self.passes(output, e) for output, e in found.items())
        text = "" if noticed else "a wrong scale was not noticed: this check says nothing"
        values = {"relative": finite(worst.relative)}
        return Finding(what=what, verdict="pass" if noticed else "fail", text=text, values=values)


def truth_dtype(problem: AttentionProblem, device: torch.device) -> torch.dtype:
    """float64; strict float32 where a card has next to no float64 units and the problem is of half precision."""
    if device.type == "cpu" or problem.dtype == "float32":
        return torch.float64
    major, minor = torch.cuda.get_device_capability(device)
    return torch.float64 if minor == 0 and major in FAST_FLOAT64 else torch.float32


def errors(answer: torch.Tensor, exact: torch.Tensor) -> Errors:
    """Both float64, of equal shape. Numbers that are not finite are counted, and the errors are then infinite."""
    bad = int((~torch.isfinite(answer)).sum())
    if bad:
        return Errors(float("inf"), float("inf"), bad)
    distance = answer - exact
    size = torch.linalg.vector_norm(exact).item()
    off = torch.linalg.vector_norm(distance).item()
    return Errors(distance.abs().max().item() if distance.numel() else 0.0, off / size if size > 0 else off, 0)


def sampled_groups(problem: AttentionProblem, pairs: int) -> tuple[Group, ...]:
    """All groups where they are within `pairs`, else some: the last KV head of the last batch item always, the first if
    there is room, the rest drawn at random."""
    each = problem.seq_q * problem.seq_kv * (problem.heads // problem.kv_heads)
    count = min(problem.batch * problem.kv_heads, MOST_GROUPS, max(1, pairs // each))
    last = problem.batch * problem.kv_heads - 1
    chosen: Sequence[int] = range(last + 1)
    if count <= last:
        middle = random.Random(0).sample(range(1, last), max(0, count - 2))
        chosen = sorted({last, *([0] if count > 1 else []), *middle})
    return tuple(divmod(i, problem.kv_heads) for i in chosen)
