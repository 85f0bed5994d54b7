"""Is the answer right? Sampled rows of every output, against the same rows worked out in float64.

Whole outputs need the whole score matrix; a row needs one row of it. The sample always holds the last row of the last head
of the last batch item (where indexing errors show), the first of all, and some drawn at random; of a padded batch the last
and first tokens, for padding is compared with nothing. For a backward pass the same rows of dQ are checked, and some keys'
dK and dV, for which every query of one head group is gone through in chunks.

The error is relative, row by row, ‖path - truth‖ / ‖truth‖, and of all rows the root mean square: the first rows of a
causal problem are a V each and later ones means of thousands, which in one norm over all would be hidden. Where the terms
of a sum cancel, and little or nothing is left of them, it is relative to the terms (to the root of the sum of their
squares): each was rounded.

How large it may be depends on the dtype, the data and the length, so standard attention in that dtype says it: the same rows
are worked out as standard attention would, every intermediate rounded, and a path may be twice as far from the truth as that
(the rule of flash-attention's own tests), where one rounding of the terms is the least: in a few numbers standard attention
may be exact by chance. Inputs are exact; bfloat16 standard attention was measured at 5.7e-3 and flash at 2.2e-3 (H200, seq
1,024, normal data). A softmax scale that is 10 % off changes outputs by about 10 %. For dK and dV, which sum over all
queries, the bounds are fixed.
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

    outputs: tuple[str, ...]  # what a path returns, AttentionProblem.outputs
    queries: tuple[tuple[int, int, int], ...]
    keys: tuple[tuple[int, int, int], ...]
    out: torch.Tensor
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None  # dQ, dK, dV
    terms: dict[str, torch.Tensor]  # (rows,): the root of the sum of squares of all that was summed up, by output
    standard: dict[str, float]  # the error of standard attention in the problem's dtype on those rows: O, dQ

    def errors(self, outputs: Sequence[torch.Tensor]) -> dict[str, float]:
        """Relative error of each output, by name; infinite when any number is not finite."""
        rows = {"O": (self.queries, self.out)}
        if self.grads is not None:
            where = (self.queries, self.keys, self.keys)
            rows |= dict(zip(("dQ", "dK", "dV"), zip(where, self.grads, strict=True), strict=True))
        return {
            name: _relative(_pick(tensor, rows[name][0]), rows[name][1], self.terms[name])
            for name, tensor in zip(self.outputs, outputs, strict=True)
        }


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
    queries = _sample(draw, problem)
    group = problem.heads // problem.kv_heads
    exact, rounded = [], []
    for b, i, h in queries:
        row = (problem, b, i, q[b, i, h], k[b, :, h // group], v[b, :, h // group], _row(grad_out, b, i, h))
        exact.append(_query_row(*row, dtype=torch.float64))
        rounded.append(_query_row(*row, dtype=q.dtype))
    outs, dqs, *squares = zip(*exact, strict=True)
    terms = {
        name: torch.tensor(square, dtype=torch.float64, device=q.device).sqrt()
        for name, square in zip(("O", "dQ"), squares, strict=True)
    }
    standard = {
        name: _standard_error(ours, theirs, terms[name], q.dtype)
        for name, ours, theirs in zip(("O", "dQ"), zip(*rounded, strict=True), (outs, dqs), strict=False)
        if name in problem.outputs
    }
    if grad_out is None:
        return Truth(problem.outputs, queries, (), torch.stack(outs), None, terms, standard)
    last_b, last_kv = _filled(problem)[-1], problem.kv_heads - 1
    keys_there = _length(problem, last_b, problem.seq_kv)
    positions = sorted({0, keys_there - 1, *(draw.randrange(keys_there) for _ in range(SAMPLED - 2))})
    keys = tuple((last_b, j, last_kv) for j in positions)
    dk, dv, terms["dK"], terms["dV"] = _key_rows(problem, positions, last_b, last_kv, q, k, v, grad_out)
    return Truth(problem.outputs, queries, keys, torch.stack(outs), (torch.stack(dqs), dk, dv), terms, standard)


def _sample(draw: random.Random, problem: AttentionProblem) -> tuple[tuple[int, int, int], ...]:
    """(batch, query, head) of some rows of the problem, the first and the last among them."""
    items = _filled(problem)
    first, last = items[0], items[-1]
    drawn = []
    for _ in range(SAMPLED - 2):
        b = items[draw.randrange(len(items))]
        drawn.append((b, draw.randrange(_length(problem, b, problem.seq_q)), draw.randrange(problem.heads)))
    end = (last, _length(problem, last, problem.seq_q) - 1, problem.heads - 1)
    return tuple(dict.fromkeys([(first, 0, 0), end, *drawn]))


def _filled(problem: AttentionProblem) -> Sequence[int]:
    """The batch items that hold a token."""
    return range(problem.batch) if problem.lengths is None else [b for b, n in enumerate(problem.lengths) if n]


def _length(problem: AttentionProblem, b: int, seq: int) -> int:
    """How many of `seq` places of batch item b hold tokens."""
    return seq if problem.lengths is None else problem.lengths[b]


def _row(tensor: torch.Tensor | None, b: int, i: int, h: int) -> torch.Tensor | None:
    return None if tensor is None else tensor[b, i, h]


@torch.no_grad()
def _query_row(
    problem: AttentionProblem,
    b: int,
    i: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor | None, float, float]:
    """One row of O and dQ, (dim,), every step rounded to `dtype`; zeros where the row sees no key. Beside each the sum of the
    squares of its terms."""
    visible = problem.visible(i, b)
    zeros = torch.zeros(problem.head_dim, dtype=dtype, device=q.device)
    if not visible:
        return zeros, None if grad is None else zeros, 0.0, 0.0
    scale = 1 / math.sqrt(problem.head_dim)
    k, v = (t[visible.start : visible.stop].to(dtype) for t in (k, v))
    p = torch.softmax(k @ q.to(dtype) * scale, dim=0)
    out, of_out = p @ v, (p**2 @ v**2).sum().item()
    if grad is None:
        return out, None, of_out, 0.0
    grad = grad.to(dtype)
    dp = v @ grad
    delta = p @ dp
    of_dp = dp**2 + v**2 @ grad**2
    of_delta = delta**2 + p**2 @ of_dp
    of_dq = (p**2 * (of_dp + of_delta) @ k**2).sum().item() * scale**2
    return out, (p * (dp - delta)) @ k * scale, of_out, of_dq


def _key_rows(
    problem: AttentionProblem,
    positions: list[int],
    b: int,
    kv_head: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """dK and dV at `positions` of one KV head, (positions, dim) float64: sums over all queries of its heads; and the root of
    the sum of the squares of the terms of each, (positions,)."""
    scale = 1 / math.sqrt(problem.head_dim)
    group = problem.heads // problem.kv_heads
    seq_q, seq_kv = (_length(problem, b, seq) for seq in (problem.seq_q, problem.seq_kv))
    keys, values = k[b, :seq_kv, kv_head].double(), v[b, :seq_kv, kv_head].double()
    at = torch.tensor(positions, device=q.device)
    dk = torch.zeros(len(positions), problem.head_dim, dtype=torch.float64, device=q.device)
    dv = torch.zeros_like(dk)
    of_dk, of_dv = torch.zeros_like(dk[:, 0]), torch.zeros_like(dk[:, 0])
    columns = torch.arange(seq_kv, device=q.device)
    chunk = max(1, CHUNK_ELEMENTS // seq_kv)
    for h in range(kv_head * group, (kv_head + 1) * group):
        for start in range(0, seq_q, chunk):
            rows = slice(start, min(start + chunk, seq_q))
            queries, grads = q[b, rows, h].double(), grad_out[b, rows, h].double()
            scores = queries @ keys.T * scale
            if problem.causal or problem.window is not None:
                own = torch.arange(rows.start, rows.stop, device=q.device)[:, None] + seq_kv - seq_q
                hidden = columns > own + (0 if problem.causal else problem.window - 1)
                if problem.window is not None:
                    hidden |= columns <= own - problem.window
                scores.masked_fill_(hidden, -torch.inf)
            p = torch.softmax(scores, dim=1).nan_to_num_(0.0)  # a row that sees no key is NaN here and 0 by definition
            dp = grads @ values.T
            delta = (p * dp).sum(dim=1, keepdim=True)
            ds = p[:, at] * (dp[:, at] - delta)
            of_dot = grads**2 @ values[at].T ** 2  # a sum over head_dim may cancel as well
            of_delta = delta**2 + ((p * dp) ** 2).sum(dim=1, keepdim=True)
            of_delta += (p[:, at] ** 2 * of_dot).sum(dim=1, keepdim=True)
            of_ds = p[:, at] ** 2 * (dp[:, at] ** 2 + of_dot + of_delta)
            of_dk += of_ds.T @ (queries**2).sum(dim=1)
            of_dv += p[:, at].T ** 2 @ (grads**2).sum(dim=1)
            dk += ds.T @ queries * scale
            dv += p[:, at].T @ grads
    return dk, dv, of_dk.sqrt() * scale, of_dv.sqrt()


def _pick(tensor: torch.Tensor, where: tuple[tuple[int, int, int], ...]) -> torch.Tensor:
    return torch.stack([tensor[b, i, h] for b, i, h in where]).double()


def _standard_error(
    ours: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], terms: torch.Tensor, dtype: torch.dtype
) -> float:
    """What standard attention does in this dtype, one rounding of the terms at least."""
    rows = torch.stack(exact)
    one_rounding = torch.finfo(dtype).eps / 2 * terms / _sizes(rows, terms)
    return max(_relative(torch.stack(ours).double(), rows, terms), _root_mean_square(one_rounding))


def _relative(rows: torch.Tensor, exact: torch.Tensor, terms: torch.Tensor) -> float:
    """All (rows, dim) but terms (rows,)."""
    if not torch.isfinite(rows).all():
        return math.inf
    return _root_mean_square(torch.linalg.vector_norm(rows - exact, dim=1) / _sizes(exact, terms))


def _sizes(exact: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """(rows,): what an error is relative to; 1 where a row is 0 and nothing was summed up."""
    sizes = torch.maximum(torch.linalg.vector_norm(exact, dim=1), terms)
    return torch.where(sizes > 0, sizes, 1.0)


def _root_mean_square(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()
