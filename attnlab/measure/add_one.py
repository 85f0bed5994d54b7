"""The smallest kernel of triton: is its compiler whole? Imported by a probe alone, where triton is installed."""

import triton
import triton.language as tl


@triton.jit
def add_one(x_pointer, n: tl.constexpr):
    """x[i] += 1 for i < n; n is a power of two. One program."""
    places = x_pointer + tl.arange(0, n)
    tl.store(places, tl.load(places) + 1.0)
