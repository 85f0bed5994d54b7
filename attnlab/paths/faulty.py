"""Paths that misbehave on purpose beyond 256 tokens (so that their trial launch succeeds). For tests; see PATHS.

assert    a device-side assert: the CUDA context is lost (GPU only)
compiles  a call in the midst of the samples stops to compile
exit      the process ends without a word, as a crash in native code does
hang      the call never returns
late      answers well, and has left an illegal access on another stream, which happens after the call (GPU only)
oom       asks for more memory than there is
spin      the call returns, and its kernel does not end for half a minute (GPU only)
unsynced  works on another stream and does not wait for it (GPU only)
wrong     the softmax scale is 10 % off
zeros     computes on zeros, which is faster where the card is held back by its power
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time

import torch

from attnlab.device import PathStatus
from attnlab.paths.base import Attention, Path
from attnlab.paths.standard import Standard
from attnlab.problem import AttentionProblem

GPU_ONLY = ("assert", "late", "spin", "unsynced")
HARMLESS_SEQ = 256
COMPILES_AT_CALL, COMPILES_S = 9, 0.3
LATE_BYTES = 1 << 30  # so much that the driver takes it back at once, and nobody else is given all of these addresses
LATE_CYCLES = 400_000_000  # 0.2 s at 2 GHz: any call of a test has returned by then
SPIN_CYCLES = 60_000_000_000  # 30 s at 2 GHz: a card whose kernel cannot be stopped is free again after that


class Faulty(Path):
    @property
    def fault(self) -> str:
        return self.name.removeprefix("faulty-")

    def status(self) -> PathStatus:
        if self.fault in GPU_ONLY and self.device.type != "cuda":
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
            if self.fault == "late":
                leave_illegal_access(q.device)
                return healthy(q, k, v)
            if self.fault == "spin":
                torch.cuda._sleep(SPIN_CYCLES)
                return healthy(q, k, v)
            if self.fault == "unsynced":
                stream = torch.cuda.Stream(q.device)
                stream.wait_stream(torch.cuda.current_stream(q.device))
                with torch.cuda.stream(stream):
                    return healthy(q, k, v)
            return healthy(q * (1.1 if self.fault == "wrong" else 0.0), k, v)

        return attention


class DriverMemory:
    """Device memory that the driver hands out past PyTorch's allocator; a tensor of it is made by torch.as_tensor."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.address = ctypes.c_uint64()
        if error := self.driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(LATE_BYTES)):
            raise RuntimeError(f"cuMemAlloc answers {error}")
        self.__cuda_array_interface__ = {
            "shape": (LATE_BYTES,), "typestr": "|u1", "data": (self.address.value, False), "version": 3,
        }  # fmt: skip

    def free(self) -> None:
        if error := self.driver.cuMemFree_v2(self.address):
            raise RuntimeError(f"cuMemFree answers {error}")


def leave_illegal_access(device: torch.device) -> None:
    """Queues, on a stream of its own, a pause and then a write to memory that is nobody's any more."""
    torch.zeros(1, dtype=torch.uint8, device=device).add_(1)  # loads the kernel, which could wait for the device
    memory = DriverMemory()
    tensor = torch.as_tensor(memory, device=device)
    memory.free()
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda._sleep(LATE_CYCLES)
        tensor.add_(1)


def make(name: str, device: torch.device) -> Path:
    return Faulty(name, device)
