"""What fits: everything that must stand in memory for one call of a path, part by part, and the longest sequence for which
that is no more than the device holds. Exact arithmetic of attnlab.cost, no torch, nothing measured.

    needs = parts(problem, "standard")
    total_bytes(problem, "standard")                  # their sum
    longest_seq(problem, "standard", 80 << 30)        # for batch 4, heads 32, dim 128, bfloat16: 12,857
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnlab import cost
from attnlab.cost import MemoryPart
from attnlab.problem import FORWARD, FORWARD_BACKWARD, LIMITS, AttentionProblem, ProblemError
from attnlab.units import sequence, size, times

PATHS = ("standard", "flash")
WANTS_MASK = ("standard", "compiled")  # the others are told that it is causal, and need no tensor for that
PURPOSES = {"inference": FORWARD, "training": FORWARD_BACKWARD}


def parts(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> tuple[MemoryPart, ...]:
    """The inputs, the mask where the path takes one, what a forward pass has saved, and the parts of the call's peak."""
    tensors = [
        ("Q", cost.query_bytes(problem)),
        ("K", cost.key_bytes(problem)),
        ("V", cost.key_bytes(problem)),
        ("dO", cost.query_bytes(problem) * problem.backward),
    ]
    copies = sum(size_bytes for _, size_bytes in tensors) if problem.lengths is not None else 0
    mask = cost.mask_bytes(problem) if path in WANTS_MASK else 0
    before = [
        *tensors,
        ("the same, padded or packed", copies),
        ("mask", mask + cost.added_mask_bytes(problem, path, device_kind)),
        ("saved by the forward pass", cost.saved_bytes(problem, path, device_kind)),
    ]
    return (
        *(MemoryPart(*part) for part in before if part[1]),
        *cost.peak_parts(problem, path, device_kind),
    )


def total_bytes(problem: AttentionProblem, path: str, device_kind: str = "cuda") -> int:
    return sum(part.size_bytes for part in parts(problem, path, device_kind))


def longest_seq(problem: AttentionProblem, path: str, capacity_bytes: int, device_kind: str = "cuda") -> int | None:
    """The longest self-attention of this shape whose total is at most the capacity, by bisection; None where not even one
    token fits. A total never falls with the sequence. At most LIMITS["seq_q"], which AttnLab computes with."""

    def fits(seq: int) -> bool:
        try:
            return total_bytes(problem.at_seq(seq), path, device_kind) <= capacity_bytes
        except ProblemError:  # more scores than a 64-bit index can address
            return False

    low, high = 0, LIMITS["seq_q"] + 1  # `low` fits, `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def table(
    problem: AttentionProblem, columns: Sequence[tuple[str, str]], device_kind: str = "cuda"
) -> tuple[list[str], list[dict[str, int]]]:
    """(names of the parts in order, for each (path, direction) its parts by name)."""
    found = [
        {part.name: part.size_bytes for part in parts(replace(problem, direction=direction), path, device_kind)}
        for path, direction in columns
    ]
    return list(dict.fromkeys(name for column in found for name in column)), found


def sentence(problem: AttentionProblem, capacity_bytes: int, device: str, device_kind: str = "cuda") -> str:
    """What fits, in one sentence for people."""
    longest = {path: longest_seq(problem, path, capacity_bytes, device_kind) for path in PATHS}
    if longest["flash"] is None:
        return f"In the {size(capacity_bytes)} of {device} not even one token of this shape fits."
    totals = {path: total_bytes(problem, path, device_kind) for path in PATHS}
    return (
        f"In the {size(capacity_bytes)} of {device} standard attention ends at sequence {sequence(longest['standard'] or 0)},"
        f" flash at {_at_least(longest['flash'])}; at {sequence(problem.seq_kv)} standard needs {size(totals['standard'])},"
        f" {times(totals['standard'] / totals['flash'])} what flash needs."
    )


def _at_least(seq: int) -> str:
    return f"{sequence(seq)} or more" if seq >= LIMITS["seq_q"] else sequence(seq)


def longest_words(seq: int | None) -> str:
    return "none fits" if seq is None else _at_least(seq)
