"""From a problem to tensors and a call: the same for every path, so that all of them do the same work."""

from __future__ import annotations

from collections.abc import Callable

import torch

from attnlab.paths.base import Attention
from attnlab.problem import AttentionProblem

Outputs = tuple[torch.Tensor, ...]


def make_inputs(
    problem: AttentionProblem, device: torch.device, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Seeded normal Q (batch, seq_q, heads, dim), K, V (batch, seq_kv, kv_heads, dim), and dO like Q for a backward pass."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = getattr(torch, problem.dtype)

    def normal(seq: int, heads: int) -> torch.Tensor:
        shape = (problem.batch, seq, heads, problem.head_dim)
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    q = normal(problem.seq_q, problem.heads)
    k, v = normal(problem.seq_kv, problem.kv_heads), normal(problem.seq_kv, problem.kv_heads)
    if not problem.backward:
        return q, k, v, None
    for tensor in (q, k, v):
        tensor.requires_grad_()
    return q, k, v, normal(problem.seq_q, problem.heads)


def make_call(
    attention: Attention,
    problem: AttentionProblem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor | None,
) -> Callable[[], Outputs]:
    """A call without arguments: () → (O,) or (O, dQ, dK, dV)."""
    if not problem.backward:

        def forward() -> Outputs:
            with torch.no_grad():
                return (attention(q, k, v),)

        return forward

    def forward_backward() -> Outputs:
        out = attention(q, k, v)
        return (out.detach(), *torch.autograd.grad(out, (q, k, v), grad_out))

    return forward_backward
