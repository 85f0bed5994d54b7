"""Paths that torch.compile makes: `compiled` is standard attention handed to the compiler, `flex` PyTorch's FlexAttention,
a flash kernel generated for the mask that it is given.

Both are compiled anew for every shape (dynamic=False: shapes are what a benchmark compares), which takes seconds and is the
first call's affair. `fullgraph=True` makes what cannot be compiled an error: it would run uncompiled under a compiled name.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from importlib.util import find_spec

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import Attention, Path, Prepared, padded
from attnlab.paths.standard import Standard
from attnlab.problem import BACKWARD, AttentionProblem

MASK_BLOCK = 128  # queries, create_block_mask's default
SHAPES = 10_000  # that one function may be compiled for; PyTorch's own limit is 8


class Compiled(Path):
    """What both have in common: a compiler is needed."""

    compiles = True

    def status(self) -> PathStatus:
        reason = ""
        if self.device.type == "cuda" and find_spec("triton") is None:
            reason = "torch.compile needs triton on a GPU; pip install triton"
        elif self.device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
            reason = "torch.compile needs a C++ compiler on a CPU, such as g++"
        if reason:
            return PathStatus(name=self.name, state="missing", reason=reason)
        return PathStatus(name=self.name, state="untested", provider=self.provider)

    @property
    def provider(self) -> str:
        return f"PyTorch {torch.__version__}, torch.compile"

    def compile(self, function: Attention, problem: AttentionProblem) -> Attention:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes that outlive the worker
        import torch._dynamo
        import torch._functorch.config

        # A compiled backward pass writes over what the forward pass saved, and then cannot run twice on one graph.
        donated = problem.direction != BACKWARD
        if torch._functorch.config.donated_buffer != donated:
            torch._functorch.config.donated_buffer = donated
            torch._dynamo.reset()  # or what was compiled before would be used again
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = SHAPES
        return torch.compile(function, dynamic=False, fullgraph=True)


class CompiledStandard(Compiled):
    def build(self, problem: AttentionProblem) -> Attention:
        attention = Standard(self.name, self.device).build(problem)
        if isinstance(attention, Prepared):
            return replace(attention, attention=self.compile(attention.attention, problem))
        return self.compile(attention, problem)


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
    return {"compiled": CompiledStandard, "flex": Flex}[name](name, device)
