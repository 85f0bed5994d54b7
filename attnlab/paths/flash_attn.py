"""The FlashAttention packages: flash-attn (2), flash_attn_interface (3) and flash-attn-4.

All take (batch, seq, heads, head_dim) and align a causal mask bottom-right (flash-attn since 2.1). A window is given to all
as window_size=(left, right), the keys seen besides one's own on either side. A padded batch goes through
flash_attn_varlen_func: its sequences packed one after the other, (tokens, heads, head_dim), with cu_seqlens, where each
begins and the last ends. Whether one is installed is decided by its distribution, never by a folder: the flash-attn 2 wheel
ships a `flash_attn/cute` of its own.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import GRID_LIMIT, Attention, Path, first_line, needs_half_precision, packed, version
from attnlab.problem import AttentionProblem


@dataclass(frozen=True)
class Package:
    distributions: tuple[str, ...]
    module: str  # has flash_attn_func and flash_attn_varlen_func
    capabilities: tuple[int, ...]  # major compute capabilities it has kernels for
    install: str


PACKAGES = {
    "flash-attn-2": Package(
        ("flash-attn",),
        "flash_attn",
        (8, 9, 10, 12),
        "pip install flash-attn --no-build-isolation (needs nvcc or a matching wheel)",
    ),
    "flash-attn-3": Package(
        ("flash-attn-3", "flash_attn_3", "flashattn-hopper"),
        "flash_attn_interface",
        (8, 9),
        "build it from flash-attention/hopper",
    ),
    "flash-attn-4": Package(
        ("flash-attn-4",),
        "flash_attn.cute",
        (9, 10, 11, 12),
        "pip install --pre 'flash-attn-4[cu13]' (a pre-release; after flash-attn 2, not before)",
    ),
}
MAX_HEAD_DIM = 256


class FlashAttn(Path):
    def __init__(self, name: str, device: torch.device):
        super().__init__(name, device)
        self._package = PACKAGES[name]
        self._function: Callable[..., Any] | None = None

    @property
    def provider(self) -> str:
        return f"{self.name} {self._version()}".strip()

    def _version(self) -> str:
        return next((v for d in self._package.distributions if (v := version(d))), "")

    def status(self) -> PathStatus:
        if self.device.type != "cuda":
            return self._missing(f"{self.name} needs an NVIDIA GPU")
        if not self._version():
            return self._missing(f"{self.name} is not installed; {self._package.install}")
        return PathStatus(name=self.name, state="untested", provider=self.provider)

    def _missing(self, reason: str) -> PathStatus:
        return PathStatus(name=self.name, state="missing", reason=reason)

    def load(self) -> Callable[..., Any]:
        """The package's flash_attn_func. Raises whatever its import raises."""
        if self._function is None:
            self._function = importlib.import_module(self._package.module).flash_attn_func
        return self._function

    def load_varlen(self) -> Callable[..., Any]:
        """The package's flash_attn_varlen_func. Raises whatever its import raises."""
        return importlib.import_module(self._package.module).flash_attn_varlen_func

    def unsupported(self, problem: AttentionProblem) -> str:
        major, minor = torch.cuda.get_device_capability(self.device)
        if major not in self._package.capabilities:
            return f"{self.name} has no kernel for compute capability {major}.{minor}"
        if reason := needs_half_precision(problem):
            return reason
        if problem.head_dim > MAX_HEAD_DIM:
            return f"head_dim is {problem.head_dim}, at most {MAX_HEAD_DIM}"
        if max(problem.batch, problem.heads) > GRID_LIMIT:
            return f"launch limit: batch is {problem.batch:,}, at most {GRID_LIMIT:,}"
        try:
            self.load()
        except Exception as error:  # an extension built against another torch raises anything at import
            return f"{self.provider} is installed but cannot load: {first_line(error)}"
        return ""

    def build(self, problem: AttentionProblem) -> Attention:
        options: dict[str, Any] = {"causal": problem.causal, **({"deterministic": True} if self.deterministic else {})}
        if problem.window is not None:
            left = problem.window - 1
            options["window_size"] = (left, 0 if problem.causal else left)
        if problem.lengths is None:
            function = self.load()
        else:
            function = self.load_varlen()
            begins = torch.tensor((0, *itertools.accumulate(problem.lengths)), dtype=torch.int32, device=self.device)
            options |= {"cu_seqlens_q": begins, "cu_seqlens_k": begins}
            options |= {"max_seqlen_q": max(problem.lengths), "max_seqlen_k": max(problem.lengths)}

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out = function(q, k, v, **options)
            return out[0] if isinstance(out, tuple) else out

        return attention if problem.lengths is None else packed(attention, problem, self.device)


def make(name: str, device: torch.device) -> Path:
    return FlashAttn(name, device)
