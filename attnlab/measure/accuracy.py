"""Is the answer right? Sampled rows of every output, against the same rows worked out in float64.

Whole outputs need the whole score matrix; a row needs one row of it. The sample always holds the last row of the last head
of the last batch item (where indexing errors show), the first of all, and some drawn at random. For a backward pass the
same rows of dQ are checked, and some keys' dK and dV, for which every query of one head group is gone through in chunks.

The error is relative Frobenius over the sample, ‖path - truth‖ / ‖truth‖. How large it may be depends on the dtype, the
data and the length, so standard attention in that dtype says it: the same rows are worked out as standard attention would,
every intermediate rounded, and a path may be twice as far from the truth as that (the rule of flash-attention's own tests).
Inputs are exact; bfloat16 standard attention was measured at 5.7e-3 and flash at 2.2e-3 (H200, seq 1,024, normal data). A
softmax scale that is 10 % off changes outputs by about 10 %. For dK and dV, which sum over all queries, the bounds are
fixed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnlab.problem import AttentionProblem

STANDARD_FACTOR, STANDARD_SLACK = 2, 1e-5  # O and dQ: of the error of standard attention in the same dtype
TOLERANCE = {"bfloat16": 4e-2, "float16": 6e-3, "float32": 4e-5}  # dK and dV
SAMPLED = 8
CHUNK_ELEMENTS = 1 << 26  # scores held at once: 512 MiB in float64


@dataclass(frozen=True)
class Truth:
    """Float64 rows of O and dQ at (batch, query, head), and of dK and dV at (batch, key, kv head)."""

    queries: tuple[tuple[int, int, int], ...]
    keys: tuple[tuple[int, int, int], ...]
    out: torch.Tensor
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None  # dQ, dK, dV
    standard: dict[str, float]  # the error of standard attention in the problem's dtype on those rows: O, dQ

    def errors(self, outputs: Sequence[torch.Tensor]) -> dict[str, float]:
        """Relative error of O, and of dQ, dK, dV when `outputs` has four tensors; infinite when any number is not finite."""
        wanted = {"O": (outputs[0], self.queries, self.out)}
        if self.grads is not None:
            for name, tensor, where, rows in zip(
                ("dQ", "dK", "dV"), outputs[1:], (self.queries, self.keys, self.keys), self.grads, strict=True
            ):
                wanted[name] = (tensor, where, rows)
        return {name: _relative(_pick(tensor, where), rows) for name, (tensor, where, rows) in wanted.items()}


def judge(errors: dict[str, float], standard: dict[str, float], dtype: str) -> str:
    """ "" when every error is one that the dtype explains, else one line that names the first that is not."""
    for name, error in errors.items():
        bound = STANDARD_FACTOR * standard[name] + STANDARD_SLACK if name in standard else TOLERANCE[dtype]
        if not error <= bound:
            what = (
                "holds numbers that are not finite"
                if math.isinf(error)
                else f"is {error:.1e} away from float64 (relative)"
            )
            return f"wrong answer: {name} {what} on sampled rows; {dtype} explains up to {bound:.1e}"
    return ""


def truth(
    problem: AttentionProblem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor | None,
    seed: int = 0,
) -> Truth:
    """Float64 rows for q (batch, seq_q, heads, dim), k, v (batch, seq_kv, kv_heads, dim), grad_out like q or None."""
    draw = random.Random(seed)
    queries = _sample(draw, (problem.batch, problem.seq_q, problem.heads))
    group = problem.heads // problem.kv_heads
    exact, rounded = [], []
    for b, i, h in queries:
        row = (problem, i, q[b, i, h], k[b, :, h // group], v[b, :, h // group], _row(grad_out, b, i, h))
        exact.append(_query_row(*row, dtype=torch.float64))
        rounded.append(_query_row(*row, dtype=q.dtype))
    outs, dqs = zip(*exact, strict=True)
    names = ("O",) if grad_out is None else ("O", "dQ")
    standard = {
        name: _relative(torch.stack(ours).double(), torch.stack(theirs))
        for name, ours, theirs in zip(names, zip(*rounded, strict=True), (outs, dqs), strict=False)
    }
    if grad_out is None:
        return Truth(queries, (), torch.stack(outs), None, standard)
    last_b, last_kv = problem.batch - 1, problem.kv_heads - 1
    positions = sorted({0, problem.seq_kv - 1, *(draw.randrange(problem.seq_kv) for _ in range(SAMPLED - 2))})
    keys = tuple((last_b, j, last_kv) for j in positions)
    dk, dv = _key_rows(problem, positions, last_b, last_kv, q, k, v, grad_out)
    return Truth(queries, keys, torch.stack(outs), (torch.stack(dqs), dk, dv), standard)


def _sample(draw: random.Random, sizes: tuple[int, int, int]) -> tuple[tuple[int, int, int], ...]:
    last = tuple(size - 1 for size in sizes)
    drawn = [tuple(draw.randrange(size) for size in sizes) for _ in range(SAMPLED - 2)]
    return tuple(dict.fromkeys([(0, 0, 0), last, *drawn]))


def _row(tensor: torch.Tensor | None, b: int, i: int, h: int) -> torch.Tensor | None:
    return None if tensor is None else tensor[b, i, h]


@torch.no_grad()
def _query_row(
    problem: AttentionProblem,
    i: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One row of O and dQ, (dim,), every step rounded to `dtype`; zeros where the row sees no key."""
    visible = problem.visible(i)
    zeros = torch.zeros(problem.head_dim, dtype=dtype, device=q.device)
    if not visible:
        return zeros, None if grad is None else zeros
    scale = 1 / math.sqrt(problem.head_dim)
    k, v = (t[visible.start : visible.stop].to(dtype) for t in (k, v))
    p = torch.softmax(k @ q.to(dtype) * scale, dim=0)
    out = p @ v
    if grad is None:
        return out, None
    dp = v @ grad.to(dtype)
    return out, (p * (dp - p @ dp)) @ k * scale


def _key_rows(
    problem: AttentionProblem,
    positions: list[int],
    b: int,
    kv_head: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dK and dV at `positions` of one KV head, (positions, dim) float64: sums over all queries of its heads."""
    scale = 1 / math.sqrt(problem.head_dim)
    group = problem.heads // problem.kv_heads
    keys, values = k[b, :, kv_head].double(), v[b, :, kv_head].double()
    at = torch.tensor(positions, device=q.device)
    dk = torch.zeros(len(positions), problem.head_dim, dtype=torch.float64, device=q.device)
    dv = torch.zeros_like(dk)
    columns = torch.arange(problem.seq_kv, device=q.device)
    chunk = max(1, CHUNK_ELEMENTS // problem.seq_kv)
    for h in range(kv_head * group, (kv_head + 1) * group):
        for start in range(0, problem.seq_q, chunk):
            rows = slice(start, min(start + chunk, problem.seq_q))
            queries, grads = q[b, rows, h].double(), grad_out[b, rows, h].double()
            scores = queries @ keys.T * scale
            if problem.masked:
                own = torch.arange(rows.start, rows.stop, device=q.device)[:, None] + problem.seq_kv - problem.seq_q
                hidden = columns > own + (0 if problem.causal else problem.window - 1)
                if problem.window is not None:
                    hidden |= columns <= own - problem.window
                scores.masked_fill_(hidden, -torch.inf)
            p = torch.softmax(scores, dim=1).nan_to_num_(0.0)  # a row that sees no key is NaN here and 0 by definition
            dp = grads @ values.T
            ds = p[:, at] * (dp[:, at] - (p * dp).sum(dim=1, keepdim=True))
            dk += ds.T @ queries * scale
            dv += p[:, at].T @ grads
    return dk, dv


def _pick(tensor: torch.Tensor, where: tuple[tuple[int, int, int], ...]) -> torch.Tensor:
    return torch.stack([tensor[b, i, h] for b, i, h in where]).double()


def _relative(rows: torch.Tensor, exact: torch.Tensor) -> float:
    if not torch.isfinite(rows).all():
        return math.inf
    size = torch.linalg.vector_norm(exact).item()
    distance = torch.linalg.vector_norm(rows - exact).item()
    return distance / size if size > 0 else distance
