"""`flex`: PyTorch's FlexAttention, a flash kernel that torch.compile generates for the mask that it is given."""

from __future__ import annotations

import torch

from attnlab.paths.base import Attention, Path, padded
from attnlab.paths.compiled import Compiled
from attnlab.problem import AttentionProblem

MASK_BLOCK = 128  # queries, create_block_mask's default


class Flex(Compiled):
    def unsupported(self, problem: AttentionProblem) -> str:
        if self.device.type == "cpu" and problem.backward:
            return "FlexAttention has no backward pass on a CPU"
        return ""

    def build(self, problem: AttentionProblem) -> Attention:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

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

            block_mask = create_block_mask(
                visible_in_tensor, batch_items, None, problem.seq_q, problem.seq_kv, device=str(self.device)
            )
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


def make(name: str, device: torch.device) -> Path:
    return Flex(name, device)
