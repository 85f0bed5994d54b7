"""What has been timed of one path on one problem: its samples, which of them count, and when there are enough.

Nothing here knows how a sample is taken; timing.py does that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from attnlab import nvml
from attnlab.interval import relative_half_width
from attnlab.roofline import Floor, Pace
from attnlab.samples import sort_out

MAX_SAMPLES = 300
SPARE_SAMPLES = 20  # so many more than the minimum may be tried when samples do not count

LATE = "launch cost may be inside"
MOVED = "the clock moved meanwhile"
DRIFTED = "the times were still on their way to where they stayed"
HURRIED = "the card had no rest between calls of such hard work"
DRIFT = 0.01


@dataclass
class Series:
    """What has been timed of one path on one problem, from however many visits. Times in ms, in time order.

    unused   place in samples_ms → why that sample does not count; impossible ones and outliers are found by `counting`
    hosts_ms what launching a call took the host, for the samples of the last batch; queues_ms: with what goes before and
             after it in the queue
    """

    samples_ms: list[float] = field(default_factory=list)
    unused: dict[int, str] = field(default_factory=dict)
    hosts_ms: list[float] = field(default_factory=list)
    queues_ms: list[float] = field(default_factory=list)
    walls_ms: list[float] = field(default_factory=list)
    graphs_ms: list[float] = field(default_factory=list)
    no_graph: str = ""  # why there is no graph, once that is known
    readings: list[nvml.Reading] = field(default_factory=list)
    unfilled: bool = False
    pace: Pace | None = None  # None: a call follows the one before it

    def counting(self, limits: Sequence[Floor] = ()) -> list[float]:
        """The samples that count, neither unused nor impossible nor outliers."""
        impossible, outliers = sort_out(self.samples_ms, limits, self.unused)
        without = {*self.unused, *impossible, *outliers}
        return [ms for i, ms in enumerate(self.samples_ms) if i not in without]

    def drop(self, why: str) -> None:
        """All samples so far; new ones will take their place."""
        self.unused |= {i: why for i in range(len(self.samples_ms)) if i not in self.unused}
        self.readings.clear()

    @property
    def conditions(self) -> nvml.Conditions:
        return nvml.Conditions.of(self.readings)

    @property
    def host_ms(self) -> float | None:
        return statistics.median(self.hosts_ms) if self.hosts_ms else None

    def count_late(self) -> None:
        """Where the queue cannot be kept full, late samples are better than few; `unfilled` marks the series."""
        late = [i for i, why in self.unused.items() if why == LATE]
        if len(late) <= len(self.samples_ms) - len(self.unused):
            return
        for i in late:
            del self.unused[i]
        self.unfilled = True

    def leave_drift(self, limits: Sequence[Floor]) -> None:
        """Takes out the first third of what counts when all of it lies on one side of all of the last third: a card that
        has just begun to work, or has just done heavier work, changes its clock and finds its level in a tenth of a second.
        """
        impossible, outliers = sort_out(self.samples_ms, limits, self.unused)
        without = {*self.unused, *impossible, *outliers}
        places = [i for i in range(len(self.samples_ms)) if i not in without]
        third = len(places) // 3
        if third < 4:  # of 8 samples without a drift 4 lie apart from the other 4 in 3 cases of 100
            return
        first, last = ([self.samples_ms[i] for i in part] for part in (places[:third], places[-third:]))
        apart = max(first) < min(last) or min(first) > max(last)
        if apart and abs(statistics.median(last) / statistics.median(first) - 1) > DRIFT:
            self.unused |= dict.fromkeys(places[:third], DRIFTED)

    @property
    def used_s(self) -> float:
        """Time that the device spent inside samples."""
        return sum(self.samples_ms + self.graphs_ms) / 1e3


@dataclass(frozen=True)
class Stop:
    """When sampling ends: the interval is within `target` and there are `wanted` samples, or `budget_s` is used up, but not
    before `min_samples` count, unless as many as were missing have been taken in vain and, while there is time, SPARE_SAMPLES
    more: what was planned for is what it may cost."""

    budget_s: float
    min_samples: int
    target: float
    wanted: int = 0

    def missing(self, counting: list[float]) -> int:
        """How many samples are to be taken at least."""
        return max(1, self.min_samples - len(counting))

    def reached(self, counting: list[float], taken: int, missing: int, started: float) -> bool:
        """`taken`: all samples since this began, those that do not count included; `missing`: when it began."""
        over = time.perf_counter() - started >= self.budget_s
        if len(counting) < self.min_samples:
            return taken >= missing + (0 if over else SPARE_SAMPLES)
        if over or taken >= MAX_SAMPLES:
            return True
        return len(counting) >= self.wanted and relative_half_width(counting) <= self.target
