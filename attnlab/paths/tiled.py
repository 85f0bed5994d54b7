"""FlashAttention's algorithm in plain PyTorch, to be read: tiles and online softmax, no score matrix in memory.

Nothing here is fast and no path runs it; tests hold it equal to `attnlab.paths.reference`. A kernel does the same with the
tiles of one (batch, head, query block) in the memory of one multiprocessor (Dao 2023, arXiv:2307.08691, algorithm 1).
"""

from __future__ import annotations

import math

import torch

LOWEST = torch.finfo(torch.float32).min  # for m, in place of -inf: -inf - -inf is nan


def standard(q, k, v):
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])  # written to memory
    weights = torch.softmax(scores, dim=-1)  # read, written
    return weights @ v  # read


def tiled(q, k, v, causal=False, block_q=128, block_k=128):
    """All (batch, heads, seq, dim). Query i's own key is own[i]."""
    seq_q, seq_kv, dim = q.shape[-2], k.shape[-2], q.shape[-1]
    own = torch.arange(seq_q, device=q.device) + seq_kv - seq_q
    out = torch.empty_like(q)
    for i in range(0, seq_q, block_q):
        q_i = q[..., i : i + block_q, :].float() / math.sqrt(dim)
        m = torch.full_like(q_i[..., :1], LOWEST)
        l, o = torch.zeros_like(m), torch.zeros_like(q_i)  # noqa: E741
        last = own[i : i + block_q, None]
        stop = int(last[-1]) + 1 if causal else seq_kv  # skip the rest
        for j in range(0, stop, block_k):
            k_j, v_j = (t[..., j : j + block_k, :].float() for t in (k, v))
            s = q_i @ k_j.mT
            if causal:
                keys = torch.arange(j, j + s.shape[-1], device=q.device)
                s = s.masked_fill(keys > last, -torch.inf)
            m_new = torch.maximum(m, s.amax(dim=-1, keepdim=True))
            rescale = torch.exp(m - m_new)
            p = torch.exp(s - m_new)
            l = rescale * l + p.sum(dim=-1, keepdim=True)  # noqa: E741
            o = rescale * o + p @ v_j
            m = m_new
        out[..., i : i + block_q, :] = o / l.clamp_min(1e-30)  # no key: 0
    return out
