"""`flash`: the best FlashAttention installed that supports the problem. Which one that is, only a try can tell
(`attnlab.measure.trial`); this module says whether there is any to try."""

from __future__ import annotations

import torch

from attnlab.device import PathStatus
from attnlab.paths import FLASH_CANDIDATES
from attnlab.paths.base import Path, load


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


def make(name: str, device: torch.device) -> Path:
    return Flash(name, device)
