"""PyTorch's scaled_dot_product_attention, held to one backend at a time.

Left alone it falls back silently (to plain operations, when nothing else takes the problem). Held by `sdpa_kernel` it
refuses instead, and its warnings say why: they become the reason of an unsupported point.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from attnlab.device import PathStatus
from attnlab.paths.base import (
    GRID_LIMIT,
    NO_PADDING,
    NO_WINDOW,
    Attention,
    Path,
    first_line,
    hidden_pairs,
    needs_half_precision,
    padded,
)
from attnlab.problem import AttentionProblem

BACKENDS = {
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa-math": SDPBackend.MATH,
}
ON_CPU = ("sdpa-flash", "sdpa-math")


class Refused(RuntimeError):
    """No kernel of the backend takes the problem; the message is PyTorch's own reason."""


class Sdpa(Path):
    def status(self) -> PathStatus:
        if self.device.type == "cpu" and self.name not in ON_CPU:
            return PathStatus(name=self.name, state="missing", reason=f"{self.name} needs an NVIDIA GPU")
        return PathStatus(name=self.name, state="untested", provider=self.provider)

    def unsupported(self, problem: AttentionProblem) -> str:
        if self.device.type == "cpu":
            return ""
        if problem.window is not None and self.name != "sdpa-math":
            return NO_WINDOW
        if self.name == "sdpa-flash" and problem.lengths is not None and not problem.causal:
            return NO_PADDING
        if self.name in ("sdpa-flash", "sdpa-cudnn") and needs_half_precision(problem):
            return needs_half_precision(problem)
        if self.name == "sdpa-flash" and problem.batch > GRID_LIMIT:
            return f"launch limit: batch is {problem.batch:,}, at most {GRID_LIMIT:,}"
        return ""

    def build(self, problem: AttentionProblem) -> Attention:
        backend = BACKENDS[self.name]
        gqa = problem.heads != problem.kv_heads
        square = problem.seq_q == problem.seq_kv
        is_causal = problem.causal and square and problem.window is None
        bias: torch.Tensor | None = None
        if problem.masked and not is_causal:
            # is_causal aligns top-left; these two align bottom-right.
            if self.device.type == "cuda" and problem.window is None and problem.lengths is None:
                bias = causal_lower_right(problem.seq_q, problem.seq_kv)
            else:
                # Added to the scores, which PyTorch would else make of a bool mask in every call.
                hidden = hidden_pairs(problem, self.device)
                bias = torch.zeros(hidden.shape, dtype=getattr(torch, problem.dtype), device=self.device)
                bias.masked_fill_(hidden, -torch.inf)

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(
                    q.transpose(1, 2),
                    k.transpose(1, 2),
                    v.transpose(1, 2),
                    attn_mask=bias,
                    is_causal=is_causal,
                    enable_gqa=gqa,
                )
            return out.transpose(1, 2)

        return padded(_Explained(attention, self.name), problem, self.device)


class _Explained:
    """Calls the kernel; the first call of all listens to PyTorch's warnings, where a refusal is explained."""

    def __init__(self, attention: Attention, name: str):
        self._attention, self._name, self._accepted = attention, name, False

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self._accepted:
            return self._attention(q, k, v)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                out = self._attention(q, k, v)
            except RuntimeError as error:
                if "o available kernel" not in str(error) and "o viable backend" not in str(error):
                    raise
                said = [reason for w in caught if (reason := _reason(str(w.message)))]
                raise Refused(said[0] if said else f"{self._name}: {first_line(error)}") from None
        self._accepted = True
        return out


def _reason(warning: str) -> str:
    """The useful sentence of one SDPA warning, not a heading ("X not used because:") nor the switch that we set."""
    text = first_line(warning).split(" (Triggered internally")[0]
    if text.endswith("because:") or "been runtime disabled" in text:
        return ""
    return text


def make(name: str, device: torch.device) -> Path:
    return Sdpa(name, device)
