"""FlashAttention's algorithm in plain PyTorch, to be read: tiles and online softmax, no score matrix in memory.

Nothing here is fast and no path runs it; tests hold it equal to `attnlab.paths.reference`. A kernel does the same with the
tiles of one (batch, head, query block) in the memory of one multiprocessor (Dao 2023, arXiv:2307.08691, algorithm 1).
"""

from __future__ import annotations

import math

import torch


def standard(q, k, v):
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])  # written to memory
    weights = torch.softmax(scores, dim=-1)  # read, written
    return weights @ v  # read


def tiled(q, k, v, causal=False, block_q=128, block_k=128):
    """q (batch, heads, seq_q, dim), k and v (batch, heads, seq_kv, dim) → O like q; causal is bottom-right."""
    seq_q, seq_kv, out = q.shape[-2], k.shape[-2], torch.empty_like(q)
    for i in range(0, seq_q, block_q):
        q_i = q[..., i : i + block_q, :].float() / math.sqrt(q.shape[-1])
        rows = torch.arange(i, i + q_i.shape[-2], device=q.device)[:, None] + seq_kv - seq_q
        m = torch.full_like(q_i[..., :1], torch.finfo(torch.float32).min)  # not -inf: -inf - -inf is nan
        l, o = torch.zeros_like(m), torch.zeros_like(q_i)  # noqa: E741
        stop = min(seq_kv, max(0, int(rows[-1]) + 1)) if causal else seq_kv  # tiles behind it are skipped
        for j in range(0, stop, block_k):
            k_j, v_j = k[..., j : j + block_k, :].float(), v[..., j : j + block_k, :].float()
            s = q_i @ k_j.mT
            if causal:
                s = s.masked_fill(torch.arange(j, j + s.shape[-1], device=q.device) > rows, -torch.inf)
            m_new = torch.maximum(m, s.amax(dim=-1, keepdim=True))
            rescale = torch.exp(m - m_new)
            p = torch.exp(s - m_new)
            l = rescale * l + p.sum(dim=-1, keepdim=True)  # noqa: E741
            o = rescale * o + p @ v_j
            m = m_new
        out[..., i : i + block_q, :] = o / l.clamp_min(1e-30)  # a row that sees no key gives 0
    return out
