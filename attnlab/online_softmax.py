"""Online softmax by hand: one query, its scores in blocks, in float64 (Milakov, Gimelshein 2018, arXiv:1805.02867).

For each block:  m' = max(m, max s)    r = e^(m - m')    p = e^(s - m')    l' = r·l + Σp    O' = r·O + Σp·v
At the end O / l is Σ softmax(s)·v, although no block has seen the scores of another.

    >>> blocks = trace((1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 0.0, 1.0), 2)
    >>> blocks[1].rescale == math.exp(2 - 4)
    True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KEYS, BLOCK = 8, 4
SCORES = (0.5, 2.0, -1.0, 1.5, 3.0, 0.0, 4.5, 2.5)
LARGE_SCORES = tuple(1000 + score for score in SCORES)
VALUES = (2.0, -2.0, 0.5, 3.0, -1.0, 2.0, 3.5, 0.25)
MOST = 1e6  # of a score or a value, either sign
# How it is worked out: as it should be, or with one half of the trick left out.
RIGHT, NO_RESCALE, NO_MAX = MODES = ("Online softmax", "Without the rescale", "Without the max")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of keys worked through. `old` values stood before it; -inf and 0 before the first."""

    first: int  # its first key, from 0
    scores: tuple[float, ...]
    values: tuple[float, ...]
    m_old: float
    m: float
    rescale: float
    p: tuple[float, ...]
    l_old: float
    l: float  # noqa: E741  # the papers' name
    o_old: float
    o: float

    @property
    def answer(self) -> float:
        """O / l: the attention over the keys so far, where the method is right."""
        return divide(self.o, self.l)


def trace(scores: Sequence[float], values: Sequence[float], block: int, mode: str = RIGHT) -> tuple[Block, ...]:
    """Every block, in order. NO_RESCALE keeps the old sums as they are, NO_MAX subtracts nothing. Nothing raises: what
    overflows is inf, and inf / inf is nan, as on a GPU."""
    m, l, o = (0.0 if mode == NO_MAX else -math.inf), 0.0, 0.0  # noqa: E741
    blocks = []
    for first in range(0, len(scores), block):
        s, v = tuple(scores[first : first + block]), tuple(values[first : first + block])
        m_new = m if mode == NO_MAX else max(m, *s)
        rescale = exp(m - m_new) if mode == RIGHT else 1.0
        p = tuple(exp(score - m_new) for score in s)
        l_new = rescale * l + added(p)
        o_new = rescale * o + added(weight * value for weight, value in zip(p, v, strict=True))
        blocks.append(
            Block(first=first, scores=s, values=v, m_old=m, m=m_new, rescale=rescale, p=p, l_old=l, l=l_new, o_old=o, o=o_new)
        )  # fmt: skip
        m, l, o = m_new, l_new, o_new  # noqa: E741
    return tuple(blocks)


def plain(scores: Sequence[float], values: Sequence[float]) -> float:
    """Softmax with all scores in sight, its max subtracted, and then the sum over the values."""
    m = max(scores)
    weights = [exp(score - m) for score in scores]
    total = added(weights)
    return added(weight / total * value for weight, value in zip(weights, values, strict=True))


def added(terms: Iterable[float]) -> float:
    """One after another, as the papers add; Python's own sum carries what rounding loses, since 3.12."""
    total = 0.0
    for term in terms:
        total += term
    return total


def exp(x: float) -> float:
    """e^x as a GPU has it: inf where it is too large for float64."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def divide(a: float, b: float) -> float:
    """a / b as a GPU has it: 0 / 0 is nan."""
    if b:
        return a / b
    return math.copysign(math.inf, a) if a else math.nan


def compared(online: float, truth: float) -> tuple[bool, str]:
    """(whether they agree up to rounding, in words how far they are apart)."""
    if online == truth:
        return True, "equal, to the last digit of float64"
    if not math.isfinite(online):
        return False, f"{number(online)} is no answer"
    apart = abs(online - truth)
    # Each of the sums rounds once a term: a few units in the last place of the largest value, and nothing else.
    ulps = round(apart / math.ulp(max(abs(online), abs(truth))))
    if ulps <= 16 or apart <= 1e-14:
        return True, f"equal but for the last digit: {apart:.1e} apart, {ulps} in the last place"
    return False, f"wrong by {apart:.3g}"


def number(value: float, digits: int = 6) -> str:
    """For a table, to so many significant digits: "−∞", "nan", "2.7183", "1.2e−05"."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if math.isnan(value):
        return "nan"
    return f"{value:.{digits}g}".replace("-", "−")


def problem_with(scores: Sequence[float | None], values: Sequence[float | None]) -> str:
    """Why these numbers cannot be worked with, in one line that names the legal ones; empty when they can."""
    for what, numbers in (("score", scores), ("value", values)):
        for key, given in enumerate(numbers, start=1):
            if given is None or not math.isfinite(given) or abs(given) > MOST:
                said = "empty" if given is None else given
                return f"the {what} of key {key} is {said}; legal: a number from −{MOST:,.0f} to {MOST:,.0f}"
    return ""
