"""The least time that the hardware needs for a problem: its arithmetic over the dense peak.

A measured time below this floor is no record but an error (a clock stopped too early, a kernel that did not run), and
`implausible` says so. Bytes over the bandwidth give no such bound: an output that is still in L2 when the clock stops
was never written to memory, so a time below that proves nothing for small tensors.

Source: Williams, Waterman, Patterson, "Roofline", 2009.
"""

from __future__ import annotations

from attnlab import cost, hardware
from attnlab.device import Device
from attnlab.problem import AttentionProblem


def compute_floor_ms(problem: AttentionProblem, device: Device) -> float | None:
    """Exact FLOPs over the device's dense peak, in ms; None when the peak is not known."""
    peak = hardware.dense_peak_tflops(device.name, problem.dtype) if device.kind == "cuda" else None
    return None if peak is None else cost.flops(problem) / peak / 1e9


def implausible(problem: AttentionProblem, device_ms: float, device: Device) -> str:
    """One line when no kernel can compute the problem there in `device_ms`; empty when it can, or nobody knows."""
    floor_ms = compute_floor_ms(problem, device)
    if floor_ms is None or device_ms >= floor_ms:
        return ""
    peak = hardware.dense_peak_tflops(device.name, problem.dtype)
    above = f"above the dense {problem.dtype} peak of {device.name}, {peak:,.10g}"
    if device_ms <= 0:
        return f"impossible: {device_ms:g} ms for {cost.flops(problem):,} FLOP, {above} TFLOP/s"
    return f"impossible: implies {cost.flops(problem) / device_ms / 1e9:,.0f} TFLOP/s, {above}"
