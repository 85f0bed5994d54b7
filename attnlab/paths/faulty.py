"""Paths that misbehave on purpose beyond 256 tokens (so that their trial launch succeeds). For tests; see PATHS.

assert    a device-side assert: the CUDA context is lost (GPU only)
compiles  a call in the midst of the samples stops to compile
exit      the process ends without a word, as a crash in native code does
hang      the call never returns
oom       asks for more memory than there is
unsynced  works on another stream and does not wait for it (GPU only)
wrong     the softmax scale is 10 % off
zeros     computes on zeros, which is faster where the card is held back by its power
"""

from __future__ import annotations

import itertools
import os
import time

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import Attention, Path
from attnlab.paths.standard import Standard
from attnlab.problem import AttentionProblem

HARMLESS_SEQ = 256
COMPILES_AT_CALL, COMPILES_S = 9, 0.3


class Faulty(Path):
    @property
    def fault(self) -> str:
        return self.name.removeprefix("faulty-")

    def status(self) -> PathStatus:
        if self.fault in ("assert", "unsynced") and self.device.type != "cuda":
            return PathStatus(name=self.name, state="missing", reason=f"{self.fault} needs an NVIDIA GPU")
        return super().status()

    def build(self, problem: AttentionProblem) -> Attention:
        healthy = Standard(self.name, self.device).build(problem)
        calls = itertools.count(1)

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
            if self.fault == "compiles":
                time.sleep(COMPILES_S if next(calls) == COMPILES_AT_CALL else 0)
                return healthy(q, k, v)
            if self.fault == "unsynced":
                stream = torch.cuda.Stream(q.device)
                stream.wait_stream(torch.cuda.current_stream(q.device))
                with torch.cuda.stream(stream):
                    return healthy(q, k, v)
            return healthy(q * (1.1 if self.fault == "wrong" else 0.0), k, v)

        return attention


def make(name: str, device: torch.device) -> Path:
    return Faulty(name, device)
