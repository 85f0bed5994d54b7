"""Standard and flash back to back, as a quick script would time them: wall clock with synchronisation around each call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from attnlab.measure.point import Bench
from attnlab.measure.timing import Check
from attnlab.measure.trial import make_call, make_inputs
from attnlab.problem import AttentionProblem


def rounds(bench: Bench, problem: AttentionProblem, flash: str, steps: int, check: Check) -> Iterator[dict[str, Any]]:
    """`steps` rounds, numbered from 0: {"step", "standard_ms", "flash_ms", "provider"}; one with "reason" alone when a path
    cannot run the problem. Round 0 is cold: first calls and warm-up are in it."""
    calls: dict[str, Callable[[], Any]] = {}
    inputs = None
    provider = ""
    for name in ("standard", flash):
        verdict = bench.trials.verdict(name, problem, lambda path, text: None)
        if verdict.reason:
            yield {"step": 0, "reason": f"{name}: {verdict.reason}"}
            return
        inputs = inputs or make_inputs(problem, bench.device)
        calls[name] = make_call(verdict.path.build(problem), problem, *inputs)
        provider = verdict.provider
    for step in range(steps):
        check()
        yield {
            "step": step,
            "standard_ms": _wall_ms(calls["standard"], bench.device),
            "flash_ms": _wall_ms(calls[flash], bench.device),
            "provider": provider,
        }


def _wall_ms(call: Callable[[], Any], device: torch.device) -> float:
    _synchronize(device)
    before = time.perf_counter()
    call()
    _synchronize(device)
    return (time.perf_counter() - before) * 1e3


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
