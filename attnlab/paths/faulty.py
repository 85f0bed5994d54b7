"""Paths that misbehave on purpose beyond 256 tokens (so that their trial launch succeeds). For tests; see PATHS.

assert   a device-side assert: the CUDA context is lost (GPU only)
exit     the process ends without a word, as a crash in native code does
hang     the call never returns
oom      asks for more memory than there is
wrong    the softmax scale is 10 % off
"""

from __future__ import annotations

import os
import time

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import Attention, Path
from attnlab.paths.standard import Standard
from attnlab.problem import AttentionProblem

HARMLESS_SEQ = 256


class Faulty(Path):
    @property
    def fault(self) -> str:
        return self.name.removeprefix("faulty-")

    def status(self) -> PathStatus:
        if self.fault == "assert" and self.device.type != "cuda":
            return PathStatus(name=self.name, state="missing", reason="a device-side assert needs an NVIDIA GPU")
        return super().status()

    def build(self, problem: AttentionProblem) -> Attention:
        healthy = Standard(self.name, self.device).build(problem)

        def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if q.shape[1] <= HARMLESS_SEQ:
                return healthy(q, k, v)
            if self.fault == "assert":
                return q[torch.full((1,), 1 << 30, device=q.device)]
            if self.fault == "exit":
                os._exit(7)
            if self.fault == "hang":
                while True:
                    time.sleep(1)
            if self.fault == "oom":
                return torch.empty(1 << 50, dtype=torch.uint8, device=q.device)
            return healthy(q * 1.1, k, v)

        return attention


def make(name: str, device: torch.device) -> Path:
    return Faulty(name, device)
