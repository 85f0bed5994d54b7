"""Standard attention: QKᵀ, scale, softmax, AV as separate operations, the scores written to memory and read again.

It is what a good PyTorch user writes: batched matrix products on views, in the dtype asked for, the mask made once
beforehand, no buffer kept alive longer than needed. Padding is computed
like the rest: that is what such a user pays for. `cost.standard_steps` lists what each operation moves.
"""

from __future__ import annotations

import math

import torch

from attnlab.paths.base import Attention, Path, hidden_pairs, padded
from attnlab.problem import AttentionProblem


class Standard(Path):
    def build(self, problem: AttentionProblem) -> Attention:
        scale = 1 / math.sqrt(problem.head_dim)
        group = problem.heads // problem.kv_heads
        mask = hidden_pairs(problem, self.device) if problem.masked else None
        blind = problem.blind_rows
        if mask is not None:
            mask[:blind] = False  # a row that is -inf throughout would make softmax NaN; it is set to 0 below

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            if group > 1:
                k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
            scores = (q @ k.transpose(-2, -1)) * scale
            if mask is not None:
                scores = scores.masked_fill(mask, -torch.inf)
            scores = torch.softmax(scores, dim=-1)
            out = scores @ v
            if blind:
                out = torch.cat((torch.zeros_like(out[:, :, :blind]), out[:, :, blind:]), dim=2)
            return out.transpose(1, 2)

        return padded(attention, problem, self.device)


def make(name: str, device: torch.device) -> Path:
    return Standard(name, device)
