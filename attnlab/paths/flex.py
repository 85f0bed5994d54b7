"""`flex`: PyTorch's FlexAttention, a flash kernel that torch.compile generates for the mask that it is given."""

from __future__ import annotations

from collections.abc import Callable

import torch

from attnlab.paths.base import Attention, Path, padded
from attnlab.paths.compiled import Compiled
from attnlab.problem import AttentionProblem

MASK_BLOCK = 128  # queries, create_block_mask's default
MASK_PAIRS = 1 << 26  # pairs of a query and a key looked at in one go: create_block_mask holds several bytes for each


class Flex(Compiled):
    def unsupported(self, problem: AttentionProblem) -> str:
        if self.device.type == "cpu" and problem.backward:
            return "FlexAttention has no backward pass on a CPU"
        return ""

    def build(self, problem: AttentionProblem) -> Attention:
        from torch.nn.attention.flex_attention import flex_attention

        block_mask = None
        if problem.masked:
            own, reach = problem.seq_kv - problem.seq_q, problem.window or problem.seq_q + problem.seq_kv
            causal, batch_items = problem.causal, None

            def visible(batch, head, query, key):
                behind = query + own - key  # 0 is the query's own key, aligned bottom-right
                ahead = behind >= 0 if causal else behind > -reach
                return ahead & (behind < reach)

            visible_in_tensor = visible
            if problem.lengths is not None:
                batch_items = problem.batch
                lengths = torch.tensor(problem.lengths, device=self.device)

                def visible_in_tensor(batch, head, query, key):
                    tokens = (query < lengths[batch]) & (key < lengths[batch])
                    return tokens & visible(batch, head, query, key)

            block_mask = _blocks(visible_in_tensor, batch_items, problem, self.device)
        gqa = problem.heads != problem.kv_heads
        rows = problem.seq_q * problem.heads // problem.kv_heads
        # For few queries there is a kernel of its own, with the queries of all heads of a group in one block; chosen by their
        # number alone, it finds no block size where group and queries together are more than the mask's block.
        options = {"FORCE_USE_FLEX_ATTENTION": True} if problem.seq_q < MASK_BLOCK < rows else None

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=gqa, kernel_options=options).transpose(
                1, 2
            )

        return padded(self.compile(attention, problem), problem, self.device)


def _blocks(visible: Callable, batch_items: int | None, problem: AttentionProblem, device: torch.device):
    """create_block_mask, some queries at a time: all at once it takes more memory than the attention, 16 GiB and more for a
    causal prompt of 131,072 tokens."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    seq_q, seq_kv = problem.seq_q, problem.seq_kv
    at_once = max(1, MASK_PAIRS // (seq_kv * (batch_items or 1) * MASK_BLOCK)) * MASK_BLOCK

    def part(first: int):
        def from_there(batch, head, query, key):
            return visible(batch, head, query + first, key)

        return create_block_mask(from_there, batch_items, None, min(at_once, seq_q - first), seq_kv, device=str(device))

    parts = [part(first) for first in range(0, seq_q, at_once)]
    names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    whole = (torch.cat([getattr(part, name) for part in parts], dim=2) for name in names)
    return BlockMask.from_kv_blocks(*whole, BLOCK_SIZE=MASK_BLOCK, mask_mod=visible, seq_lengths=(seq_q, seq_kv))


def make(name: str, device: torch.device) -> Path:
    return Flex(name, device)
