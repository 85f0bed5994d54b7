"""The looks at a path's answers, by the name of the sweep's task."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnlab.finding import Finding
from attnlab.measure.anatomy import Anatomy
from attnlab.measure.counters import Counters, find_ncu
from attnlab.measure.determinism import Determinism
from attnlab.measure.edges import Edges
from attnlab.measure.exactness import Exactness
from attnlab.measure.support import Support
from attnlab.measure.timing import Check, Timer
from attnlab.measure.trial import Trials, Verdict
from attnlab.problem import AttentionProblem

Look = Callable[[str, Verdict], Iterator[Finding]]  # a path's name, and whether it runs the problem itself
REFUSABLE = ("exactness", "determinism", "anatomy", "counters")  # nothing to look at where a path does not run the problem


def examiner(task: str, problem: AttentionProblem, trials: Trials, timer: Timer, check: Check) -> Look:
    """What looks at one path after the other, made with all that it needs for them. Raises KeyError for an unknown task."""
    make = {
        "anatomy": lambda: Anatomy(problem, trials.device, timer, check).look,
        "counters": lambda: Counters(Anatomy(problem, trials.device, timer, check), find_ncu()).look,
        "exactness": lambda: Exactness(problem, trials.device, check).look,
        "determinism": lambda: Determinism(problem, trials.device, timer, check).look,
        "edges": lambda: Edges(problem, trials, check).look,
        "support": lambda: Support(problem, trials, check).look,
    }
    return make[task]()
