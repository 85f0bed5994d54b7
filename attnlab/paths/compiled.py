"""`compiled`: standard attention handed to torch.compile, which may recognise it and put a flash kernel in its place; what ran
is read from the profiler, as of every path.

It is compiled anew for every shape (dynamic=False: shapes are what a benchmark compares), which takes seconds and is the
first call's affair. `fullgraph=True` makes what cannot be compiled an error: it would run uncompiled under a compiled name.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from importlib.util import find_spec

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import Attention, Path, Prepared
from attnlab.paths.standard import Standard
from attnlab.problem import BACKWARD, AttentionProblem

SHAPES = 10_000  # that one function may be compiled for; PyTorch's own limit is 8


class Compiled(Path):
    """A path that torch.compile makes: it needs a compiler."""

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


def make(name: str, device: torch.device) -> Path:
    return CompiledStandard(name, device)
