"""What does each path run? One feature at a time, by a launch of a small problem and a look at its answer.

The library's own limits are asked first (paths' `unsupported`), then it is launched: what it raises is its reason. What it
answers is held to the float64 reference, because a kernel that runs and is wrong supports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from attnlab.finding import Finding
from attnlab.measure.exactness import Exactness
from attnlab.measure.timing import Check
from attnlab.measure.trial import Trials, Verdict, device_fault, silent
from attnlab.paths.base import first_line
from attnlab.problem import FORWARD, FORWARD_BACKWARD, AttentionProblem

GRID_BATCHES = (65_535, 65_536)  # the largest y- and z-dimension of a CUDA grid, and one more


@dataclass(frozen=True)
class Feature:
    name: str
    changes: dict[str, Any]
    needs: Callable[[str], bool] = lambda kind: True  # of the device's kind


BASE = {
    "batch": 2, "seq_q": 128, "seq_kv": 128, "heads": 4, "kv_heads": 4, "head_dim": 64, "causal": False, "window": None,
    "direction": FORWARD, "lengths": None,
}  # fmt: skip
SHORT = {"seq_q": 16, "seq_kv": 16, "heads": 2, "kv_heads": 2}
FEATURES = (
    *(Feature(dtype, {"dtype": dtype}) for dtype in ("bfloat16", "float16", "float32")),
    *(Feature(f"head dim {dim}", {"head_dim": dim}) for dim in (32, 80, 96, 100, 128, 192, 256, 320)),
    Feature("causal", {"causal": True}),
    Feature("grouped KV heads", {"kv_heads": 2}),
    Feature("one KV head", {"kv_heads": 1}),
    Feature("decode: 1 query", {"seq_q": 1, "causal": True}),
    Feature("cross: fewer keys", {"seq_q": 128, "seq_kv": 77}),
    Feature("causal, fewer queries", {"seq_q": 64, "causal": True}),
    Feature("causal, rows that see nothing", {"seq_q": 128, "seq_kv": 64, "causal": True}),
    Feature("sliding window", {"causal": True, "window": 32}),
    Feature("padded batch", {"lengths": (128, 77)}),
    Feature("zero-length sequence", {"lengths": (0, 77)}),
    Feature("backward", {"direction": FORWARD_BACKWARD}),
    Feature("backward, grouped, causal", {"direction": FORWARD_BACKWARD, "kv_heads": 2, "causal": True}),
    *(Feature(f"batch {batch:,}", SHORT | {"batch": batch}, lambda kind: kind == "cuda") for batch in GRID_BATCHES),
)  # fmt: skip


class Support:
    """`problem` gives the dtype that features are tried in, where they are not about the dtype."""

    def __init__(self, problem: AttentionProblem, trials: Trials, check: Check):
        self.trials, self.check = trials, check
        self.features = [
            (feature.name, replace(problem, **(BASE | feature.changes)))
            for feature in FEATURES
            if feature.needs(trials.device.type)
        ]
        self._exact: dict[AttentionProblem, Exactness] = {}

    def look(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        for feature, problem in self.features:
            self.check()
            yield self._look(name, feature, problem)

    def _look(self, name: str, feature: str, problem: AttentionProblem) -> Finding:
        verdict = self.trials.verdict(name, problem, silent)
        if verdict.reason:
            return Finding(what=feature, verdict="fail" if verdict.wrong else "unsupported", text=verdict.reason)
        if verdict.path.compiles:  # the trial was a launch, and another shape would be another compilation
            return Finding(what=feature, verdict="pass", text=verdict.provider)
        if problem not in self._exact:
            self._exact[problem] = Exactness(problem, self.trials.device, self.check)
        exactness = self._exact[problem]
        try:
            failed = [finding for finding in exactness.outputs(verdict) if finding.failed]
        except Exception as error:  # a limit that shows at this size only, such as that of a grid
            if isinstance(error, torch.OutOfMemoryError) or device_fault(self.trials.device):
                raise
            return Finding(what=feature, verdict="unsupported", text=first_line(error))
        if failed:
            return Finding(what=feature, verdict="fail", text=f"wrong answer: {failed[0].what} {failed[0].text}")
        return Finding(what=feature, verdict="pass", text=verdict.provider)
