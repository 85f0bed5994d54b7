"""The least time that the hardware needs for a problem, and what it means when a clock shows less.

Two floors: the arithmetic that no kernel can leave out over the dense peak, and, where the cache was cold, what must be
read over the bandwidth of the memory. (Writing gives no floor: an output that is still in L2 when the clock stops was never
written to memory.) A time below a floor is no record but an error: a clock stopped too early, a kernel that did not run.

The peak is the data sheet's. On a card that the table does not know it is what a large matrix product and a large copy
reached there, and since those stay below the true peak, a time is called impossible only well above them.

Source: Williams, Waterman, Patterson, "Roofline", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnlab import cost, hardware
from attnlab.device import Device
from attnlab.problem import FORWARD, AttentionProblem

# How far above a measured ceiling the true peak may lie. On an H200 a matrix product reached 779 of 989.5 TFLOP/s and a
# copy 4.11 of 4.8 TB/s.
MATMUL_MARGIN = 1.5
COPY_MARGIN = 1.25

# A card that works so hard (so near its compute floor) runs into its power limit after 20 to 100 ms, and from then on its
# clock wanders: flash on an H200 takes 5.78 ms at 8,192 at first and 6.4 to 6.6 ms later, other after other work. With a
# rest as long as the work it takes 5.77 to 5.79 ms in every process, and at 16,384 22.8 to 23.0 ms. A rest of 20 ms and
# more before each single call of some ms is worse (5.78 to 6.0 ms). Many shorter calls are timed before the limit is met.
HARD_SHARE = 0.3
HARD_MS = 1.0
BURST_MS = 6.0
SHORTEST_REST_S, LONGEST_REST_S = 0.005, 0.1  # a call of 100 ms meets the limit by itself, each time in the same way


@dataclass(frozen=True)
class Floor:
    """`amount` of `unit` (TFLOP or TB) cannot be done in less than `ms`, because of `peak`, in words."""

    ms: float
    amount: float
    unit: str
    peak: str

    def broken_by(self, ms: float) -> str:
        """One line when a time in ms, above 0, lies below the floor, with the rate that it implies; else empty."""
        if ms >= self.ms:
            return ""
        rate = self.amount / ms * 1e3
        return f"impossible: implies {rate:,.{0 if rate >= 100 else 1}f} {self.unit}/s, above {self.peak}"


def compute_floor(problem: AttentionProblem, device: Device) -> Floor | None:
    """Exact FLOPs over the dense peak, without those that a kernel spares by keeping the scores; None without a peak."""
    if device.kind != "cuda":
        return None
    peak, words = hardware.dense_peak_tflops(device.name, problem.dtype), f"the dense {problem.dtype} peak of"
    words = f"{words} {device.name}, {peak:,.10g}" if peak else ""
    measured = dict(device.matmul_tflops).get(problem.dtype, 0.0)
    if measured > (peak or 0.0):  # of an unknown card, or of one that clocks higher than its data sheet reckons
        peak = MATMUL_MARGIN * measured
        words = f"{MATMUL_MARGIN:g} times what a large matrix product reached here, {measured:,.0f} measured"
    if peak is None:
        return None
    tflop = (cost.flops(problem) - cost.recompute_flops(problem)) / 1e12
    return Floor(tflop / peak * 1e3, tflop, "TFLOP", words)


def memory_floor(problem: AttentionProblem, device: Device, l2: str) -> Floor | None:
    """What must be read over the bandwidth; None when the cache was not cold or no bandwidth is known."""
    if device.kind != "cuda" or l2 != "cold":
        return None
    bandwidth = hardware.bandwidth_tbs(device.name)
    words = f"the bandwidth of {device.name}, {bandwidth:.10g} TB/s, from a cold cache" if bandwidth else ""
    if bandwidth is None and device.copy_tbs:
        bandwidth = COPY_MARGIN * device.copy_tbs
        words = f"{COPY_MARGIN:g} times what a large copy reached here, {device.copy_tbs:.2f} TB/s measured"
    if bandwidth is None:
        return None
    once_read_bytes = cost.min_read_bytes(replace(problem, direction=FORWARD))
    if problem.backward:  # dO; what the backward pass reads again may still be in the cache by then
        once_read_bytes += cost.seen_query_bytes(problem)
    terabytes = once_read_bytes / 1e12
    return Floor(terabytes / bandwidth * 1e3, terabytes, "TB", words)


@dataclass(frozen=True)
class Pace:
    """Hard work in bursts: a rest of `rest_s`, then `calls` one behind the other."""

    calls: int
    rest_s: float

    @property
    def share_s(self) -> float:
        """Of the rest, what falls to each call."""
        return self.rest_s / self.calls


def pace(problem: AttentionProblem, device: Device, ms: float) -> Pace | None:
    """How calls of `ms` must follow one another so that the card's power limit does not change their time; None: as they
    like, since they do not work hard enough or not long enough."""
    floor = compute_floor(problem, device)
    if floor is None or ms < HARD_MS or floor.ms < HARD_SHARE * ms:
        return None
    calls = max(1, int(BURST_MS / ms))
    return Pace(calls, min(max(calls * ms / 1e3, SHORTEST_REST_S), LONGEST_REST_S))


def floors(problem: AttentionProblem, device: Device, l2: str) -> tuple[Floor, ...]:
    """Those that are known, for times measured with the cache as `l2` says ("cold", "hot", "" for a host)."""
    known = (compute_floor(problem, device), memory_floor(problem, device, l2))
    return tuple(floor for floor in known if floor is not None)


def implausible(ms: float, floors: Sequence[Floor]) -> str:
    """One line when nothing can be that fast; empty when it can, or nobody knows."""
    if ms <= 0:
        return f"impossible: a time of {ms:g} ms"
    return next((line for floor in floors if (line := floor.broken_by(ms))), "")
