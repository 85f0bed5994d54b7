"""Standard and flash back to back, as a quick script would time them: wall clock with synchronisation around each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attnlab.measure.inputs import make_call, make_inputs
from attnlab.measure.point import Bench
from attnlab.measure.timing import Check
from attnlab.measure.trial import silent
from attnlab.problem import AttentionProblem


def rounds(bench: Bench, problem: AttentionProblem, flash: str, steps: int, check: Check) -> Iterator[dict[str, Any]]:
    """`steps` rounds, numbered from 0: {"step", "standard_ms", "flash_ms", "provider"}; one with "reason" alone when a path
    cannot run the problem. Round 0 is cold: first calls and warm-up are in it."""
    calls: dict[str, Callable[[], Any]] = {}
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
            "standard_ms": bench.timer.timed_call(calls["standard"])[1] * 1e3,
            "flash_ms": bench.timer.timed_call(calls[flash])[1] * 1e3,
            "provider": provider,
        }
