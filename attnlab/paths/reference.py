"""The reference: attention worked out with every operation written out, in the precision that is asked for.

In float64 it is the truth that every path is held to; in the problem's own dtype, each intermediate rounded to it, it is
what standard attention answers (attnlab/paths/standard.py, and autograd behind it). For exactness, never for speed: it goes
through the rows in chunks, so that a score matrix never stands in memory as a whole, and through some heads only where
all would take too long.

Matrix products of low precision accumulate in float32 and round once, on GPUs as on CPUs; a product that goes over all
queries (dK, dV) is therefore summed in float32 across the chunks and rounded at the end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch

from attnlab.problem import AttentionProblem

CHUNK_ELEMENTS = 1 << 26  # scores held at once: 512 MiB in float64

Group = tuple[int, int]  # (batch item, KV head): the unit of what is worked out, with all query heads that read it


@torch.no_grad()
def attend(
    problem: AttentionProblem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor | None,
    groups: Sequence[Group],
    dtype: torch.dtype = torch.float64,
) -> dict[str, torch.Tensor]:
    """name → the output for those groups, in float64, as `picked` cuts it out of a path's output.

    q (batch, seq_q, heads, dim), k, v (batch, seq_kv, kv_heads, dim), grad_out like q, needed for a backward pass.
    """
    with strict_float32():
        parts = [_group(problem, q, k, v, grad_out, group, dtype) for group in groups]
    return {name: torch.stack([part[name] for part in parts]) for name in problem.outputs}


@contextlib.contextmanager
def strict_float32() -> Iterator[None]:
    """float32 products in full precision, TF32 off; the process's own setting afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def picked(problem: AttentionProblem, name: str, output: torch.Tensor, groups: Sequence[Group]) -> torch.Tensor:
    """What a path answered for those groups, in float64: O and dQ (groups, seq_q, query heads of one KV head, dim), dK and
    dV (groups, seq_kv, dim)."""
    n = problem.heads // problem.kv_heads
    if name in ("O", "dQ"):
        return torch.stack([output[b, :, h * n : (h + 1) * n] for b, h in groups]).double()
    return torch.stack([output[b, :, h] for b, h in groups]).double()


def _group(
    problem: AttentionProblem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor | None,
    group: Group,
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    (b, kv_head), n = group, problem.heads // problem.kv_heads
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    scale = 1 / math.sqrt(problem.head_dim)
    keys, values = k[b, :, kv_head].to(dtype), v[b, :, kv_head].to(dtype)
    shape = (problem.seq_q, n, problem.head_dim)
    out = {"O": torch.zeros(shape, dtype=torch.float64, device=q.device)}
    out["dQ"] = torch.zeros_like(out["O"])
    whole_dk, whole_dv = (torch.zeros(keys.shape, dtype=sums, device=q.device) for _ in range(2))
    chunk = max(1, CHUNK_ELEMENTS // problem.seq_kv)
    for i in range(n):
        head = kv_head * n + i
        dk, dv = (torch.zeros(keys.shape, dtype=sums, device=q.device) for _ in range(2))
        for start in range(0, problem.seq_q, chunk):
            rows = slice(start, min(start + chunk, problem.seq_q))
            queries = q[b, rows, head].to(dtype)
            scores = queries @ keys.T * scale
            blind = None
            if (hidden := _hidden(problem, b, rows, q.device)) is not None:
                scores = scores.masked_fill(hidden, -torch.inf)
                blind = hidden.all(dim=1, keepdim=True)
            p = torch.softmax(scores, dim=1)
            if blind is not None:
                p = p.masked_fill(blind, 0)  # a row that sees no key gives 0, and padding reads 0
            out["O"][rows, i] = (p @ values).double()
            if grad_out is None:
                continue
            grads = grad_out[b, rows, head].to(dtype)
            if blind is not None:
                grads = grads.masked_fill(blind, 0)
            dp = grads @ values.T
            wide_p, wide_dp = p.to(sums), dp.to(sums)
            ds = (wide_p * (wide_dp - (wide_p * wide_dp).sum(dim=1, keepdim=True))).to(dtype) * scale
            out["dQ"][rows, i] = (ds @ keys).double()
            dk += ds.to(sums).T @ queries.to(sums)
            dv += wide_p.T @ grads.to(sums)
        if grad_out is not None:
            whole_dk += dk.to(dtype)  # one gradient for each query head, and then their sum
            whole_dv += dv.to(dtype)
    return out | {"dK": whole_dk.to(dtype).double(), "dV": whole_dv.to(dtype).double()}


def _hidden(problem: AttentionProblem, b: int, rows: slice, device: torch.device) -> torch.Tensor | None:
    """(rows, seq_kv) bool, true where a query of batch item b must not look; None where nothing is hidden."""
    if not problem.masked:
        return None
    columns = torch.arange(problem.seq_kv, device=device)
    queries = torch.arange(rows.start, rows.stop, device=device)[:, None]
    behind = queries + problem.seq_kv - problem.seq_q - columns  # how far a key lies behind the query's own
    hidden = torch.zeros_like(behind, dtype=torch.bool)
    if problem.causal:
        hidden |= behind < 0
    if problem.window is not None:
        hidden |= behind.abs() >= problem.window
    if problem.lengths is not None:
        hidden |= (columns >= problem.lengths[b]) | (queries >= problem.lengths[b])
    return hidden
