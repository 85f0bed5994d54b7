"""Standard and flash back to back, as a quick script would time them: wall clock with synchronisation around each call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from attnlab import cost
from attnlab.measure import memory
from attnlab.measure.inputs import Call, make_call, make_inputs
from attnlab.measure.point import Bench
from attnlab.measure.timing import Check
from attnlab.measure.trial import silent
from attnlab.problem import AttentionProblem
from attnlab.units import size


def rounds(bench: Bench, problem: AttentionProblem, flash: str, steps: int, check: Check) -> Iterator[dict[str, Any]]:
    """`steps` rounds, numbered from 0: {"step", "standard_ms", "flash_ms", "provider"}; one with "reason" alone when a path
    cannot run the problem. Round 0 is cold: first calls and warm-up are in it."""
    if reason := too_large(problem, flash, bench.device):
        yield {"step": 0, "reason": reason}
        return
    calls: dict[str, Call] = {}
    inputs = None
    provider = ""
    for name in ("standard", flash):
        verdict = bench.trials.verdict(name, problem, silent)
        if verdict.reason:
            yield {"step": 0, "reason": verdict.reason if name in verdict.reason else f"{name}: {verdict.reason}"}
            return
        inputs = inputs or make_inputs(problem, bench.device)
        calls[name] = make_call(verdict.path.build(problem), problem, *inputs)
        provider = verdict.provider
    for step in range(steps):
        check()
        yield {
            "step": step,
            "standard_ms": bench.timer.timed_call(calls["standard"].launch)[1] * 1e3,
            "flash_ms": bench.timer.timed_call(calls[flash].launch)[1] * 1e3,
            "provider": provider,
        }


def too_large(problem: AttentionProblem, flash: str, device: torch.device) -> str:
    """Why the two paths cannot fit the free memory, in one line; "" when they can."""
    needs = cost.input_bytes(problem) + max(
        cost.predicted_peak_bytes(problem, path, device.type) + cost.saved_bytes(problem, path, device.type)
        for path in ("standard", flash)
    )
    free = memory.free_bytes(device)
    if needs <= free:
        return ""
    return f"out of memory: predicted to need {size(needs)}, {size(free)} are free; lower batch, heads or seq"
