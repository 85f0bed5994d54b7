"""The attention paths, by name. This module is plain Python; a path's own module (which imports torch) loads in the worker.

Adding a path is one module with the interface of `attnlab.paths.base` and one line in PATHS.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class PathInfo:
    name: str
    module: str  # attnlab.paths.<module>
    what: str  # one line for people


PATHS: dict[str, PathInfo] = {
    info.name: info
    for info in (
        PathInfo("standard", "standard", "QKᵀ, softmax, AV as separate operations; the scores go through memory"),
        PathInfo("flash", "flash", "the best FlashAttention installed that supports the problem"),
        PathInfo("flash-attn-2", "flash_attn", "the flash-attn package (FlashAttention-2)"),
        PathInfo("flash-attn-3", "flash_attn", "the flash_attn_interface package (FlashAttention-3, Hopper)"),
        PathInfo("flash-attn-4", "flash_attn", "the flash-attn-4 package (CuTe DSL, Hopper and Blackwell)"),
        PathInfo("sdpa-flash", "sdpa", "scaled_dot_product_attention held to PyTorch's flash kernel"),
        PathInfo("sdpa-cudnn", "sdpa", "scaled_dot_product_attention held to cuDNN"),
        PathInfo("sdpa-efficient", "sdpa", "scaled_dot_product_attention held to the memory-efficient kernel"),
        PathInfo("sdpa-math", "sdpa", "scaled_dot_product_attention held to plain operations"),
        PathInfo("compiled", "compiled", "standard under torch.compile, which may put a flash kernel in its place"),
        PathInfo("flex", "flex", "FlexAttention, a flash kernel that torch.compile generates"),
    )
}

# What `flash` tries, best first.
FLASH_CANDIDATES = ("flash-attn-4", "flash-attn-3", "flash-attn-2", "sdpa-flash")

# Paths that misbehave on purpose, for tests of everything around them; there only when the environment asks for them.
FAULTS = ("assert", "compiles", "exit", "hang", "late", "oom", "spin", "unsynced", "wrong", "zeros")
if os.environ.get("ATTNLAB_FAULTY"):
    PATHS |= {f"faulty-{fault}": PathInfo(f"faulty-{fault}", "faulty", f"a test path: {fault}") for fault in FAULTS}
