"""Paths that torch.compile makes: `compiled` is standard attention handed to the compiler, `flex` PyTorch's FlexAttention,
a flash kernel generated for the mask that it is given.

Both are compiled anew for every shape (dynamic=False: shapes are what a benchmark compares), which takes seconds and is the
first call's affair. `fullgraph=True` makes what cannot be compiled an error: it would run uncompiled under a compiled name.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import Attention, Path
from attnlab.paths.standard import Standard
from attnlab.problem import AttentionProblem

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

    def compile(self, function: Attention) -> Attention:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes that outlive the worker
        import torch._dynamo

        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = SHAPES
        return torch.compile(function, dynamic=False, fullgraph=True)


class CompiledStandard(Compiled):
    def build(self, problem: AttentionProblem) -> Attention:
        return self.compile(Standard(self.name, self.device).build(problem))


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
            causal = problem.causal

            def visible(batch, head, query, key):
                behind = query + own - key  # 0 is the query's own key, aligned bottom-right
                ahead = behind >= 0 if causal else behind > -reach
                return ahead & (behind < reach)

            block_mask = create_block_mask(visible, None, None, problem.seq_q, problem.seq_kv, device=str(self.device))
        gqa = problem.heads != problem.kv_heads

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            return flex_attention(q, k, v, block_mask=block_mask, enable_gqa=gqa).transpose(1, 2)

        return self.compile(attention)


def make(name: str, device: torch.device) -> Path:
    return {"compiled": CompiledStandard, "flex": Flex}[name](name, device)
