"""`flash`: the best FlashAttention installed that supports the problem. Which one that is, only a try can tell
(`attnlab.measure.trial`); this module says which to try first.

The newest is the best, but for few queries over many keys (decoding): such a problem fills a card only where the keys are
split among its multiprocessors, which flash-attn-4 does not do on Hopper ("SplitKV not supported on SM 9.0", interface.py
of 4.0.0b36). One query of 32 heads over 131,072 keys of 8 KV heads on an H200: 1.33 ms, and 0.148 ms with flash-attn-2.
"""

from __future__ import annotations

import torch

from attnlab.device import PathStatus
from attnlab.paths import FLASH_CANDIDATES
from attnlab.paths.base import Path, load
from attnlab.problem import AttentionProblem

QUERY_BLOCK = 128  # queries that one multiprocessor works on at a time
MANY_KEYS = 1024  # fewer are not worth splitting


class Flash(Path):
    @property
    def candidates(self) -> list[Path]:
        return [load(name, self.device) for name in FLASH_CANDIDATES]

    def status(self) -> PathStatus:
        for candidate in self.candidates:
            status = candidate.status()
            if status.usable:
                return PathStatus(name=self.name, state="untested", provider=status.provider)
        return PathStatus(name=self.name, state="missing", reason="no FlashAttention is installed")


def candidates(problem: AttentionProblem, multiprocessors: int, capability: tuple[int, int]) -> tuple[str, ...]:
    """Names of paths, the best first, on a GPU of that compute capability; all of FLASH_CANDIDATES."""
    blocks = problem.batch * problem.heads * -(-problem.seq_q // QUERY_BLOCK)
    if capability[0] == 9 and blocks < multiprocessors and problem.seq_kv > MANY_KEYS:
        return tuple(sorted(FLASH_CANDIDATES, key=lambda name: name == "flash-attn-4"))
    return FLASH_CANDIDATES


def make(name: str, device: torch.device) -> Path:
    return Flash(name, device)
