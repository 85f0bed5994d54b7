"""From a problem to tensors and a call: the same for every path, so that all of them do the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnlab.paths.base import Attention, Prepared
from attnlab.problem import BACKWARD, AttentionProblem

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


@dataclass(frozen=True)
class Call:
    """A path on given tensors. `launch` is what is timed: () → the problem's outputs, in the path's own form. Calling it
    gives them as (batch, seq, heads, dim), 0 in the padding; `restore` turns what `launch` gave into that."""

    launch: Callable[[], Outputs]
    restore: Callable[[torch.Tensor], torch.Tensor] | None = None  # of one output; None: it is in that form

    def __call__(self) -> Outputs:
        return self.answer(self.launch())

    def answer(self, outputs: Outputs) -> Outputs:
        return outputs if self.restore is None else tuple(map(self.restore, outputs))


def make_call(
    attention: Attention,
    problem: AttentionProblem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor | None,
) -> Call:
    """A call for (O,), (O, dQ, dK, dV) or, of a backward pass alone, (dQ, dK, dV).

    What a user prepares once is done here, before any clock starts: packing a padded batch, or setting its padding to 0.
    For a backward pass alone the forward pass is, too; its graph is kept, so that the call can be repeated.
    """
    restore = None
    if isinstance(attention, Prepared):
        q, k, v = (attention.prepare(t.detach()).requires_grad_(problem.backward) for t in (q, k, v))
        grad_out = None if grad_out is None else attention.prepare(grad_out)
        attention, restore = attention.attention, attention.restore
    if problem.direction == BACKWARD:
        out = attention(q, k, v)

        def launch() -> Outputs:
            return torch.autograd.grad(out, (q, k, v), grad_out, retain_graph=True)

    elif problem.backward:

        def launch() -> Outputs:
            # Autograd waits for the stream that a leaf was made on, which a call captured on another stream must not do.
            leaves = [t.detach().requires_grad_() for t in (q, k, v)]
            out = attention(*leaves)
            return (out.detach(), *torch.autograd.grad(out, leaves, grad_out))

    else:

        def launch() -> Outputs:
            with torch.no_grad():
                return (attention(q, k, v),)

    return Call(launch, restore)
