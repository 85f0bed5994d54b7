"""What the device really reaches: a large matrix product for each dtype, a large copy. Measured once for a device and its
software, and stored; the efficiency chart draws it, and on a card that no data sheet is known of it stands in for the peak.

Random normal data (zeros draw less power and run at higher clocks), a warm-up first, then the best of a few: a ceiling is
what can be reached, not what is usual.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from attnlab.measure.timing import Timer
from attnlab.paths.base import first_line
from attnlab.problem import DTYPE_BYTES

SMALLEST, LARGEST = 256, 8192  # the product's n; it doubles until one product takes long enough
LONG_S = {"cuda": 0.001, "cpu": 0.02}
BEST_OF = 5
COPY_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
FREE_SHARE = 8  # at most one part in so many of the free memory


def matmul_tflops(device: torch.device, timer: Timer, free_bytes: int) -> list[tuple[str, float]]:
    """(dtype, TFLOP/s) of an n × n × n product for each dtype that the device multiplies."""
    rates = []
    for name, size_bytes in DTYPE_BYTES.items():
        try:
            rates.append((name, _product_tflops(device, timer, getattr(torch, name), free_bytes // size_bytes)))
        except RuntimeError as error:  # a dtype without a product there
            print(f"attnlab.ceilings: no {name} product: {first_line(error)}")
    return rates


def _product_tflops(device: torch.device, timer: Timer, dtype: torch.dtype, free_elements: int) -> float:
    n, rate = SMALLEST, 0.0
    while True:
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        seconds = _best_s(lambda a=a, b=b, out=out: torch.matmul(a, b, out=out), timer)
        rate = max(rate, 2 * n**3 / seconds / 1e12)
        if seconds >= LONG_S[device.type] or n >= LARGEST or 3 * (2 * n) ** 2 > free_elements // FREE_SHARE:
            return rate
        n *= 2


def copy_tbs(device: torch.device, timer: Timer, free_bytes: int) -> float:
    """TB/s, read and written bytes together, of a copy too large for the caches."""
    elements = min(COPY_BYTES[device.type], free_bytes // FREE_SHARE) // 4
    source = torch.randn(elements, device=device)
    target = torch.empty_like(source)
    return 2 * elements * 4 / _best_s(lambda: target.copy_(source), timer) / 1e12


def _best_s(call: Callable[[], object], timer: Timer) -> float:
    timer.timed_call(call)
    return min(timer.timed_call(call)[1] for _ in range(BEST_OF))
