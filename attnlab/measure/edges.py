"""Numerical edges: small inputs on which attention goes wrong in known ways, each path's answer beside the right one.

Every edge keeps dtype, head dim and direction of the problem, as far as it makes sense, and its inputs are chosen so that
the right answer is known; the float64 reference on the same inputs says what it is.

Values of a finding: got and right (the number that is furthest off, or one that is not finite, which got has as None),
max_abs (how far off; None where a number is not finite), allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from attnlab import edges
from attnlab.finding import Finding, finite
from attnlab.measure.exactness import FACTOR
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.timing import Check
from attnlab.measure.trial import Trials, Verdict, device_fault, silent
from attnlab.paths.base import first_line
from attnlab.paths.reference import attend, picked
from attnlab.problem import FORWARD, AttentionProblem

LARGE = 40.0  # 64 products of 40 · 40 are 102,400, beyond the 65,504 of float16, and e^(12,800) is beyond any dtype
ALLOWED = {"bfloat16": 4e-2, "float16": 6e-3, "float32": 1e-4}  # absolute: answers are of size 1, rounded a few times

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True)
class Edge:
    """One of attnlab.edges; `problem` makes the problem out of the one on the page, `fill` its inputs."""

    name: str
    problem: Callable[[AttentionProblem], AttentionProblem]
    fill: Callable[[AttentionProblem, Inputs], Inputs]


SMALL: dict[str, Any] = {
    "batch": 1, "seq_q": 64, "seq_kv": 64, "heads": 2, "kv_heads": 2, "causal": False, "window": None, "lengths": None,
}  # fmt: skip


def _small(p: AttentionProblem, **changes: Any) -> AttentionProblem:
    return replace(p, **(SMALL | changes))


def _as_drawn(p: AttentionProblem, inputs: Inputs) -> Inputs:
    return inputs


def _large(p: AttentionProblem, inputs: Inputs) -> Inputs:
    """Query i and key i point the same way, all others away from each other: O is V."""
    q, _, v, grad = inputs
    signs = torch.where(torch.randn(q.shape, generator=torch.Generator().manual_seed(1)) > 0, LARGE, -LARGE).to(q)
    return signs, signs.clone(), v.detach(), grad


def _very_negative(p: AttentionProblem, inputs: Inputs) -> Inputs:
    """All logits are equal and far below 0: O is the mean of V."""
    q, k, v, grad = inputs
    return torch.full_like(q, LARGE / 4), torch.full_like(k, -LARGE / 4), v.detach(), grad


EDGES = (
    Edge(edges.LARGE_LOGITS, lambda p: _small(p, direction=FORWARD), _large),
    Edge(edges.VERY_NEGATIVE_LOGITS, lambda p: _small(p, direction=FORWARD), _very_negative),
    Edge(edges.ONE_VISIBLE_KEY, lambda p: _small(p, seq_kv=1), _as_drawn),
    Edge(edges.BLIND_ROWS, lambda p: _small(p, seq_q=5, seq_kv=2, causal=True), _as_drawn),
    Edge(edges.EMPTY_SEQUENCE, lambda p: _small(p, batch=2, lengths=(0, 40)), _as_drawn),
)  # fmt: skip


class Edges:
    def __init__(self, problem: AttentionProblem, trials: Trials, check: Check):
        self.problem, self.trials, self.check = problem, trials, check

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        for edge in EDGES:
            self.check()
            yield self._look(name, edge, edge.problem(self.problem))

    def _look(self, name: str, edge: Edge, problem: AttentionProblem) -> Finding:
        """Past the trial: a path that is refused because it answers wrongly shall show its answer."""
        verdict = self.trials.verdict(name, problem, silent)
        path, reason = (verdict.path, verdict.reason) if name == "flash" else (self.trials.paths[name], "")
        reason = reason or path.status().reason or path.unsupported(problem)
        if reason:
            return Finding(what=edge.name, verdict="unsupported", text=reason)
        inputs = edge.fill(problem, make_inputs(problem, self.trials.device))
        if problem.backward:
            inputs = (*(t.detach().requires_grad_() for t in inputs[:3]), inputs[3])
        every = [(b, h) for b in range(problem.batch) for h in range(problem.kv_heads)]
        exact = attend(problem, *inputs, every)
        try:
            outputs = make_call(path.build(problem), problem, *inputs)()
        except Exception as error:  # whatever a library raises for what it does not take is its answer
            if isinstance(error, torch.OutOfMemoryError) or device_fault(self.trials.device):
                raise
            return Finding(what=edge.name, verdict="unsupported", text=first_line(error))
        answers = {name: picked(problem, name, out, every) for name, out in zip(problem.outputs, outputs, strict=True)}
        return compared(edge.name, answers, exact, FACTOR * ALLOWED[problem.dtype])


def compared(what: str, answers: dict[str, torch.Tensor], exact: dict[str, torch.Tensor], allowed: float) -> Finding:
    """By the number that is furthest off, as a share of the largest of its output where that is above 1."""
    worst: tuple[float, float, float, float, str] = (-1.0, 0.0, 0.0, allowed, "")
    for output, answer in answers.items():
        got, right = answer.flatten(), exact[output].flatten()
        apart = (got - right).abs().nan_to_num(nan=torch.inf)
        at, here = int(apart.argmax()), allowed * max(1.0, right.abs().max().item())
        found = (apart[at].item() / here, got[at].item(), right[at].item(), here, output)
        worst = max(worst, found, key=lambda w: w[0])
    share, got, right, here, output = worst
    text = "" if share <= 1 else f"answers {got:.4g} in {output} where {right:.4g} is right"
    values = {"got": finite(got), "right": finite(right), "max_abs": finite(share * here), "allowed": here}
    return Finding(what=what, verdict="pass" if share <= 1 else "fail", text=text, values=values)
