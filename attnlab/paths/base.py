"""The interface of an attention path, and how one is tried.

A path turns a problem into a callable: (Q, K, V) → O, all (batch, seq, heads, head_dim). What a user would prepare once
(a mask) is prepared in `build`, before any clock starts; where the tensors themselves are (a padded batch), it returns a
Prepared, which says how. Everything that can go wrong is a sentence:

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
    deterministic: bool = False  # build with the library's own promise of equal repeats, where it has one

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
        """The call for this problem: Q (batch, seq_q, heads, head_dim) and K, V (batch, seq_kv, kv_heads, head_dim) → O, of
        Q's shape. Raises what the library raises for a problem that it refuses; NotImplementedError where the path only
        stands for others, as `flash` does for its candidates."""
        raise NotImplementedError(f"{self.name} is built as one of its candidates")


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
NO_PADDING = "a padded batch needs a mask that this kernel does not take; with a causal mask it needs none"


def needs_half_precision(problem: AttentionProblem) -> str:
    if problem.dtype == "float32":
        return "float32 is not supported; float16 or bfloat16 is needed"
    return ""


def hidden_pairs(problem: AttentionProblem, device: torch.device) -> torch.Tensor:
    """Bool, true where a query must not look: mask and window, bottom-right, and padding. 1 byte an element.

    (seq_q, seq_kv) without lengths, and with a causal mask, which hides the padding behind a query by itself; for lengths
    alone (batch, 1, 1, seq_kv); for lengths and a window on both sides (batch, 1, seq_q, seq_kv). Padding is free to look at
    padding, and all is free in an empty sequence: a row that is hidden throughout would make softmax NaN.
    """
    if problem.lengths is None or problem.causal:
        return _hidden_by_place(problem, device)
    padding = padding_of(problem, device)
    if problem.window is None:
        return (padding & ~padding.all(dim=1, keepdim=True))[:, None, None, :]
    return _hidden_by_place(problem, device) | (padding[:, None, None, :] & ~padding[:, None, :, None])


def _hidden_by_place(problem: AttentionProblem, device: torch.device) -> torch.Tensor:
    """(seq_q, seq_kv). The causal part is built in place; what lies before a window takes a second mask meanwhile."""
    own = (
        problem.seq_kv - problem.seq_q
    )  # query i's own key is i + own, and triu_ and tril_ count diagonals the same way
    hidden = torch.ones(problem.seq_q, problem.seq_kv, dtype=torch.bool, device=device)
    hidden.triu_(diagonal=own + (1 if problem.causal else problem.window))
    if problem.window is not None:
        hidden |= torch.ones_like(hidden).tril_(diagonal=own - problem.window)
    return hidden


def padding_of(problem: AttentionProblem, device: torch.device) -> torch.Tensor:
    """(batch, seq) bool, true where a padded batch holds no token."""
    lengths = torch.tensor(problem.lengths, device=device)
    return torch.arange(problem.seq_kv, device=device) >= lengths[:, None]


@dataclass(frozen=True)
class Prepared:
    """An attention over tensors in a form of its own, made before any clock starts: what a padded batch needs.

    prepare    (batch, seq, heads, dim) → what `attention` takes; Q, K, V and dO alike, whatever stands in the padding
    attention  (Q, K, V) → O, all in that form
    restore    back, for O and the gradients alike: (batch, seq, heads, dim), 0 in the padding
    """

    attention: Attention
    prepare: Callable[[torch.Tensor], torch.Tensor]
    restore: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.restore(self.attention(self.prepare(q), self.prepare(k), self.prepare(v)))


def padded(attention: Attention, problem: AttentionProblem, device: torch.device) -> Attention:
    """`attention`, which computes padding as it does all else, given 0 there; as it is where there are no lengths."""
    if problem.lengths is None:
        return attention
    padding = padding_of(problem, device)[:, :, None, None]

    def blank(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.masked_fill(padding, 0)

    return Prepared(attention, blank, blank)


def packed(attention: Attention, problem: AttentionProblem, device: torch.device) -> Prepared:
    """`attention` over (tokens, heads, dim), the sequences one after the other without padding."""
    places = (~padding_of(problem, device)).flatten().nonzero().squeeze(1)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten(0, 1)[places]

    def unpack(tokens: torch.Tensor) -> torch.Tensor:
        whole = tokens.new_zeros(problem.batch * problem.seq_q, *tokens.shape[1:])
        return whole.index_copy(0, places, tokens).unflatten(0, (problem.batch, problem.seq_q))

    return Prepared(attention, pack, unpack)
