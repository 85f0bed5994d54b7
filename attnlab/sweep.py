"""A sweep: one attention problem at growing sequence lengths, through several paths."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from attnlab.checked import shown
from attnlab.paths import PATHS
from attnlab.problem import LIMITS, AttentionProblem, ProblemError, check_whole_number

SHORTEST = 128
MAX_SEQS = 1_000
DEFAULT_PATHS = ("standard", "flash")
DEFAULT_BUDGET_S = 30.0
BUDGET_MAX_S = 86_400
DEFAULT_PRECISION = 0.01
PRECISIONS = (0.001, 0.5)
PRECISION_LEGAL = "half an interval over its median, from 0.001 to 0.5"
L2_MODES = ("cold", "hot")
TASKS = ("time", "exactness", "determinism", "edges", "support", "anatomy", "counters")
TIME = TASKS[0]
BUDGET_LEGAL = f"seconds, more than 0, at most {BUDGET_MAX_S:,}"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to measure. Raises ProblemError when it cannot be.

    problem    what every point has in common; `at` gives a point's own. Lengths of a padded batch are those at the problem's
               own sequence length, the longest by custom; every other point has them in proportion
    seqs       ascending sequence lengths
    seq_q      queries of every point, such as 1 for decoding over a cache of `seq` keys; None: as many as keys
    paths      names from attnlab.paths.PATHS
    budget_s   seconds the whole run may take; a point predicted not to fit is `skipped`
    try_oom    try a point that is predicted to run out of memory (device only; host memory is never tried)
    refine     narrow the intervals after the quick pass
    precision  half of an interval over its median at which a point is sharp enough: 0.01 is "within 1 %"
    l2         "cold": the cache is flushed before each sample; "hot": it is as the call before left it (a GPU's)
    task       what is asked of each path at each point: how long it takes ("time"), or one of the looks at its answers
               that attnlab.finding tells of
    """

    problem: AttentionProblem
    seqs: tuple[int, ...]
    paths: tuple[str, ...] = DEFAULT_PATHS
    budget_s: float = DEFAULT_BUDGET_S
    try_oom: bool = False
    refine: bool = True
    seq_q: int | None = None
    precision: float = DEFAULT_PRECISION
    l2: str = "cold"
    task: str = TIME

    def __post_init__(self) -> None:
        if not self.seqs:
            raise ProblemError("the sweep has no sequence length; legal: one or more whole numbers, like 128,256,512")
        if len(self.seqs) > MAX_SEQS:
            raise ProblemError(f"the sweep has {len(self.seqs):,} sequence lengths; legal: at most {MAX_SEQS:,}")
        for seq in self.seqs:
            check_whole_number("seq", seq, LIMITS["seq_q"])
            self.at(seq)
        if list(self.seqs) != sorted(set(self.seqs)):
            object.__setattr__(self, "seqs", tuple(sorted(set(self.seqs))))
        if not self.paths:
            raise ProblemError(f"no path to measure; legal: {', '.join(PATHS)}")
        for path in self.paths:
            if type(path) is not str or path not in PATHS:
                raise ProblemError(f"path is {shown(path)}; legal: {', '.join(PATHS)}")
        object.__setattr__(self, "paths", tuple(dict.fromkeys(self.paths)))
        if type(self.budget_s) not in (int, float) or not 0 < self.budget_s <= BUDGET_MAX_S:
            raise ProblemError(f"budget is {shown(self.budget_s)}; legal: {BUDGET_LEGAL}")
        if type(self.precision) not in (int, float) or not PRECISIONS[0] <= self.precision <= PRECISIONS[1]:
            raise ProblemError(f"precision is {shown(self.precision)}; legal: {PRECISION_LEGAL}")
        if self.l2 not in L2_MODES:
            raise ProblemError(f"l2 is {shown(self.l2)}; legal: {', '.join(L2_MODES)}")
        if self.task not in TASKS:
            raise ProblemError(f"task is {shown(self.task)}; legal: {', '.join(TASKS)}")
        for name in ("try_oom", "refine"):
            if type(getattr(self, name)) is not bool:
                raise ProblemError(f"{name} is {shown(getattr(self, name))}; legal: true, false")

    def at(self, seq: int) -> AttentionProblem:
        """The problem of the point at `seq` keys. Raises ProblemError."""
        seq_q = seq if self.seq_q is None else self.seq_q
        return replace(self.problem, seq_q=seq_q, seq_kv=seq, lengths=self.problem.lengths_at(seq))

    @property
    def point_count(self) -> int:
        return len(self.paths) * len(self.seqs)

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem.to_json(),
            "seqs": list(self.seqs),
            "paths": list(self.paths),
            "budget_s": self.budget_s,
            "try_oom": self.try_oom,
            "refine": self.refine,
            "seq_q": self.seq_q,
            "precision": self.precision,
            "l2": self.l2,
            **({} if self.task == TIME else {"task": self.task}),
        }

    @classmethod
    def from_json(cls, data: Any) -> Sweep:
        """Reads what to_json wrote. Raises ProblemError."""
        if not isinstance(data, dict) or not {"problem", "seqs"} <= set(data):
            raise ProblemError("a sweep is a JSON object with problem, seqs, paths, …")
        known = [f.name for f in fields(cls)]
        for name, value in data.items():
            if name not in known:
                raise ProblemError(f"unknown sweep field {shown(name)}; legal: {', '.join(known)}")
            if name in ("seqs", "paths") and not isinstance(value, list):
                raise ProblemError(f"{name} is {shown(value)}; legal: a list")
        lists = {name: tuple(data[name]) for name in ("seqs", "paths") if name in data}
        return cls(**{**data, **lists, "problem": AttentionProblem.from_json(data["problem"])})


def powers_of_two(longest: int) -> tuple[int, ...]:
    """128, 256, … up to `longest`."""
    return tuple(SHORTEST << i for i in range(64) if SHORTEST << i <= longest)


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """128, 256, … and `longest` itself, whatever it is."""
    return tuple(dict.fromkeys([*powers_of_two(longest), longest]))


def default_sweep(device_kind: str) -> Sweep:
    """What a first visitor sees: a shape that fits the device and is done in seconds."""
    if device_kind == "cuda":
        problem = AttentionProblem(batch=4, seq_q=16_384, heads=32, head_dim=128, dtype="bfloat16")
    else:
        problem = AttentionProblem(batch=1, seq_q=2_048, heads=8, head_dim=64, dtype="float32")
    return Sweep(problem=problem, seqs=powers_of_two(problem.seq_q))
