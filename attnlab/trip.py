"""Standard attention's trip through memory: its operations, what each moves, and what was measured of each.

A line of the list is a line of attnlab/paths/standard.py (QKᵀ, scale, mask, softmax, AV), with the copies made for it
(cost.standard_operations). Flash has one line.

What was measured comes from a run of the task "anatomy": one finding for each operation, its text the kernels that ran,
its values `device_ms`, `read_bytes`, `write_bytes`, `kernels`; or of "counters", which adds `dram_read_bytes` and
`dram_write_bytes`, what the hardware counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab import cost
from attnlab.cost import MemoryStep
from attnlab.device import Device
from attnlab.finding import Finding
from attnlab.hardware import bandwidth_tbs
from attnlab.problem import AttentionProblem, ProblemError
from attnlab.run import Run
from attnlab.sweep import Sweep
from attnlab.units import sequence, times

ANATOMY, COUNTERS = TASKS = ("anatomy", "counters")
STANDARD, FLASH = "standard", "flash"
KERNEL = "kernel"  # the finding of a path that is one operation
VIEW, COPY = "transpose of Q", "contiguous Q"  # findings of "standard"
BUDGET_S = 120.0
MARK_LONGER = 8_192  # a length at which everybody's scores are large


def operations(problem: AttentionProblem) -> tuple[MemoryStep, ...]:
    """The standard path's lines, in order; of flash there is `flash`."""
    return cost.standard_operations(problem)


def copies(problem: AttentionProblem, operation: str) -> tuple[str, ...]:
    """What is copied for an operation before it can run: ("copy of Q", "copy of K")."""
    return tuple(step.name for step in cost.standard_steps(problem) if cost.OPERATIONS.get(step.name) == operation)


def flash(problem: AttentionProblem) -> MemoryStep:
    """Flash, at best: Q, K and V in once, O out once (cost.min_bytes)."""
    return MemoryStep(KERNEL, cost.min_read_bytes(problem), cost.min_write_bytes(problem))


def standard_bytes(problem: AttentionProblem) -> int:
    return sum(operation.moved_bytes for operation in operations(problem))


def device_tbs(device: Device | None) -> tuple[float | None, str]:
    """(TB/s of the device's memory, where from); the data sheet's, else that of a large copy measured there."""
    if device is None:
        return None, "not known before the worker has looked"
    if (sheet := bandwidth_tbs(device.name)) is not None:
        return sheet, "data sheet"
    return device.copy_tbs, "a large copy, measured" if device.copy_tbs else "not known for this device"


def ms_at(moved_bytes: int, tbs: float | None) -> float | None:
    """Milliseconds to move so many bytes at `tbs` TB/s (10^12 bytes a second); None where that is unknown."""
    return moved_bytes / tbs / 1e9 if tbs else None


def tbs_of(moved_bytes: float | None, ms: float | None) -> float | None:
    """Achieved TB/s; None where either is not known or no time passed."""
    return moved_bytes / ms / 1e9 if moved_bytes and ms else None


def sweep(problem: AttentionProblem, task: str = ANATOMY) -> Sweep:
    """What a button asks for. Raises ProblemError."""
    return Sweep(
        problem=problem, seqs=(problem.seq_q,), paths=(STANDARD, FLASH), task=task, refine=False, budget_s=BUDGET_S
    )


def found(run: Run | None, path: str, seq: int) -> Mapping[str, Finding]:
    """What was measured of a path, by operation; empty where nothing was."""
    m = run.get(path, seq) if run else None
    return {finding.what: finding for finding in m.findings} if m else {}


def counted_bytes(finding: Finding | None) -> tuple[float, float] | None:
    """(read, written) as the hardware counted them; None where nobody looked."""
    values = finding.values if finding else {}
    read, written = values.get("dram_read_bytes"), values.get("dram_write_bytes")
    return None if read is None or written is None else (read, written)


def total_counted(findings: Mapping[str, Finding], names: Sequence[str]) -> tuple[float, float] | None:
    """The sums over the operations; None while one of them has not been counted."""
    found_bytes = [counted_bytes(findings.get(name)) for name in names]
    if not found_bytes or None in found_bytes:
        return None
    return sum(read for read, _ in found_bytes), sum(written for _, written in found_bytes)


def not_counted(run: Run | None, seq: int) -> str:
    """Why the counters could not be read, of the first path that has a reason; "" where none has."""
    findings = (found(run, path, seq).get(COUNTERS) for path in (STANDARD, FLASH))
    return next((finding.text for finding in findings if finding), "")


def ms_of(finding: Finding | None) -> float | None:
    return finding.values.get("device_ms") if finding else None


def total_ms(findings: Mapping[str, Finding], names: Sequence[str]) -> float | None:
    """The sum over the operations; None while one of them has no time."""
    found_ms = [ms_of(findings.get(name)) for name in names]
    return sum(found_ms) if found_ms and None not in found_ms else None


def decimal_size(size_bytes: float) -> str:
    """Bytes in decimal units, as bandwidths are given: "67.1 MB", "17.2 GB", "512 B"."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= 0.9995 * factor:
            scaled = size_bytes / factor
            return f"{scaled:,.0f} {unit}" if scaled >= 99.95 else f"{scaled:#.3g} {unit}"
    return f"{size_bytes:,.0f} B"


def rate(tbs: float) -> str:
    """A bandwidth: "4.8 TB/s", "17.5 GB/s"."""
    return f"{tbs:.3g} TB/s" if tbs >= 0.1 else f"{1000 * tbs:.3g} GB/s"


def scores_words(problem: AttentionProblem) -> str:
    """What the scores take: "The scores of 4 × 32 × 512 × 512 in bfloat16 are 67.1 MB; at 8,192 they are 17.2 GB"."""
    p = problem
    shape = f"{p.batch} × {p.heads} × {sequence(p.seq_q)} × {sequence(p.seq_kv)}"
    said = f"The scores of {shape} in {p.dtype} are {decimal_size(cost.score_bytes(p))}"
    other = MARK_LONGER if p.seq_q != MARK_LONGER else 2 * MARK_LONGER
    try:
        return f"{said}; at {sequence(other)} they are {decimal_size(cost.score_bytes(p.at_seq(other)))}"
    except ProblemError:
        return said


def sentence(problem: AttentionProblem) -> str:
    """The whole difference, to be read out."""
    standard, best = standard_bytes(problem), flash(problem).moved_bytes
    ratio = standard / best
    moved = f"Standard moves {decimal_size(standard)} through memory, flash {decimal_size(best)}"
    return f"{moved}: {times(ratio)} less."
