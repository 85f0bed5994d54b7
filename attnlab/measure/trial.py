"""A tiny real launch decides whether a path can run a kind of problem; a version number or a clean import does not.

A kind is what kernels are chosen by: path, dtype, head dim, mask, direction, head grouping. Each is tried once, on 128
tokens; the trial also compiles what is compiled just in time and reads the kernel's name from the profiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from attnlab.device import PathStatus
from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.kernels import main_kernel
from attnlab.paths import FLASH_CANDIDATES, PATHS
from attnlab.paths.base import Path, first_line, load
from attnlab.problem import AttentionProblem

TINY_SEQ = 128

Say = Callable[..., None]  # say(event, **fields): a message of attnlab.protocol, without its id


def silent(event: str, **fields: object) -> None:
    """For callers to whom nothing need be said."""


class DeviceLost(RuntimeError):
    """The device's context is unusable; only a new process can go on. The message is the first line of the cause."""


@dataclass(frozen=True)
class Verdict:
    """`reason` is empty when the path runs this kind of problem."""

    path: Path
    provider: str
    reason: str = ""
    seconds: float = 0.0  # what the trial took, compilation included


class Trials:
    """Remembers the verdict on each kind of problem."""

    def __init__(self, device: torch.device):
        self.device = device
        self.paths = {name: load(name, device) for name in PATHS}
        self._verdicts: dict[tuple[str, AttentionProblem], Verdict] = {}

    def verdict(self, name: str, problem: AttentionProblem, say: Say) -> Verdict:
        """The verdict on path `name`; for `flash` the first candidate that runs the problem. Raises DeviceLost.

        Says `compiling` before a first launch."""
        if name != "flash":
            return self._one(self.paths[name], problem, say, name)
        refusals = []
        for candidate in FLASH_CANDIDATES:
            verdict = self._one(self.paths[candidate], problem, say, name)
            if not verdict.reason:
                return verdict
            if self.paths[candidate].status().usable:
                refusals.append(f"{candidate}: {verdict.reason}")
        reason = "no installed FlashAttention runs this; " + ("; ".join(refusals) or "none is installed")
        return Verdict(self.paths["flash"], "", reason)

    def _one(self, path: Path, problem: AttentionProblem, say: Say, asked: str) -> Verdict:
        if not (status := path.status()).usable:
            return Verdict(path, "", status.reason)
        if reason := path.unsupported(problem):
            return Verdict(path, path.provider, reason)
        tiny = tiny_problem(problem)
        key = (path.name, tiny)
        if key not in self._verdicts:
            say(
                "compiling",
                path=asked,
                text=f"preparing {path.provider} for head_dim {problem.head_dim} {problem.dtype}",
            )
            self._verdicts[key] = self._launch(path, tiny)
        return self._verdicts[key]

    def _launch(self, path: Path, tiny: AttentionProblem) -> Verdict:
        started = time.perf_counter()
        try:
            call = make_call(path.build(tiny), tiny, *make_inputs(tiny, self.device))
            call()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        except Exception as error:  # whatever a library raises for a problem it does not take is its answer
            if device_lost(self.device):
                raise DeviceLost(f"{path.name}: {first_line(error)}") from None
            return Verdict(path, path.provider, first_line(error), time.perf_counter() - started)
        seconds = time.perf_counter() - started
        kernel = main_kernel(call, self.device)
        return Verdict(path, f"{path.provider} · {kernel}" if kernel else path.provider, seconds=seconds)

    def status(self, name: str, problem: AttentionProblem) -> PathStatus:
        """The path's status after a try with `problem`. Raises DeviceLost."""
        status = self.paths[name].status()
        if not status.usable:
            return status
        verdict = self.verdict(name, problem, silent)
        state = "broken" if verdict.reason else "ready"
        return replace(status, state=state, provider=verdict.provider, reason=verdict.reason)


def tiny_problem(problem: AttentionProblem) -> AttentionProblem:
    """The smallest problem of the same kind: same dtype, head dim, mask, direction, grouping and order of lengths."""
    q = TINY_SEQ * (2 if problem.seq_q > problem.seq_kv else 1)
    kv = TINY_SEQ * (2 if problem.seq_q < problem.seq_kv else 1)
    group = problem.heads // problem.kv_heads
    return replace(problem, batch=1, seq_q=q, seq_kv=kv, heads=group, kv_heads=1)


def device_lost(device: torch.device) -> bool:
    """After an error: whether the context still answers. A device-side assert or an illegal access never heals."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
        torch.zeros(1, device=device).item()
    except torch.OutOfMemoryError:
        return False
    except RuntimeError:
        return True
    return False
