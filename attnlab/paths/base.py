"""The interface of an attention path, and how one is tried.

A path turns a problem into a callable: (Q, K, V) → O, all (batch, seq, heads, head_dim). What a user would prepare once
(a mask) is prepared in `build`, before any clock starts. Everything that can go wrong is a sentence:

    status()               can it load here at all?           → PathStatus
    unsupported(problem)   does the library refuse this?      → "" or a reason in words
    build(problem)         → callable; may raise what the library raises
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from attnlab.device import PathStatus
from attnlab.paths import PATHS
from attnlab.problem import AttentionProblem

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

GRID_LIMIT = 65_535  # CUDA C++ Programming Guide, compute capabilities: the largest y- and z-dimension of a grid


@dataclass
class Path:
    """One path on one device. Subclasses fill in the rest."""

    name: str
    device: torch.device

    compiles: ClassVar[bool] = False  # anew for every shape, for seconds

    def status(self) -> PathStatus:
        return PathStatus(name=self.name, state="ready", provider=self.provider)

    @property
    def provider(self) -> str:
        """Package and version."""
        return f"PyTorch {torch.__version__}"

    def unsupported(self, problem: AttentionProblem) -> str:
        return ""

    def build(self, problem: AttentionProblem) -> Attention:
        raise NotImplementedError(f"{type(self).__name__}.build")


def load(name: str, device: torch.device) -> Path:
    """The path called `name`. Raises KeyError for a name that is not in PATHS."""
    module = importlib.import_module(f"attnlab.paths.{PATHS[name].module}")
    return module.make(name, device)


def version(distribution: str) -> str:
    """The installed version, "" when there is none. The distribution decides, not a folder that happens to be importable."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def first_line(error: BaseException | str) -> str:
    """The first line of an error that says something, shortened for a table cell."""
    text = str(error) or type(error).__name__
    line = next((part.strip() for part in text.splitlines() if part.strip()), type(error).__name__)
    return re.sub(r"\s+", " ", line)[:300]


NO_WINDOW = "a sliding window needs a mask that this kernel does not take"


def needs_half_precision(problem: AttentionProblem) -> str:
    if problem.dtype == "float32":
        return "float32 is not supported; float16 or bfloat16 is needed"
    return ""


def hidden_pairs(problem: AttentionProblem, device: torch.device) -> torch.Tensor:
    """(seq_q, seq_kv) bool, true where a query must not look: mask and window, bottom-right. 1 byte a pair.

    The causal part is built in place; what lies before a window takes a second mask while it is built.
    """
    own = (
        problem.seq_kv - problem.seq_q
    )  # query i's own key is i + own, and triu_ and tril_ count diagonals the same way
    hidden = torch.ones(problem.seq_q, problem.seq_kv, dtype=torch.bool, device=device)
    hidden.triu_(diagonal=own + (1 if problem.causal else problem.window))
    if problem.window is not None:
        hidden |= torch.ones_like(hidden).tril_(diagonal=own - problem.window)
    return hidden
