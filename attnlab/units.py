"""How figures, shapes and progress are written, everywhere alike: in charts, tables, sentences and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.problem import AttentionProblem

if TYPE_CHECKING:  # what a run is made of writes figures itself
    from attnlab.run import Run


def ms(value: float | None) -> str:
    """Milliseconds to three significant digits, as seconds from 1,000 on: "0.0131 ms", "2.69 ms", "139 ms", "3.38 s",
    "1,234 s"; "–" when not known."""
    if value is None:
        return "–"
    number, unit = (value, "ms") if value < 999.5 else (value / 1000, "s")
    return f"{number:,.0f} {unit}" if number >= 99.95 else f"{number:#.3g} {unit}"


def seconds(value: float) -> str:
    """Seconds to two significant digits, whole from 10 on: "0.05 s", "2.4 s", "100 s", "1,234 s"."""
    return f"{value:,.0f} s" if value >= 9.95 else f"{value:.2g} s"


def size(value: int | None) -> str:
    """Bytes in the largest binary unit that keeps the figure at 1 or more: "8.25 GiB"; "–" when not known."""
    if value is None:
        return "–"
    if value < 1024:
        return f"{value} B"
    units = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = next(n for n in range(1, 7) if n == 6 or value / 1024**n < 1023.5)
    scaled = value / 1024**power
    return f"{scaled:,.0f} {units[power - 1]}" if scaled >= 99.95 else f"{scaled:.3g} {units[power - 1]}"


def times(value: float | None) -> str:
    """A ratio: "6.9×", "66×", "1,250×", "0.05×"; "–" when not known."""
    if value is None:
        return "–"
    if value < 0.095:
        return f"{value:.2g}×"
    return f"{value:.1f}×" if value < 9.95 else f"{value:,.0f}×"


def percent(share: float) -> str:
    """A share: "64 %", "-36 %"; with a decimal below 1 %: "0.3 %"."""
    return f"{100 * share:,.{0 if abs(share) >= 0.00995 or not share else 1}f} %"


def sequence(value: int) -> str:
    """A sequence length with thousands separators: "16,384"."""
    return f"{value:,}"


def shape(problem: AttentionProblem) -> str:
    """All but the sequence lengths: "batch 4, heads 32 over 8, dim 128, bfloat16, causal, window 512, forward+backward"."""
    heads = f"heads {problem.heads}" + (f" over {problem.kv_heads}" if problem.kv_heads != problem.heads else "")
    window = [] if problem.window is None else [f"window {problem.window:,}"]
    valid = problem.tokens / (problem.batch * problem.seq_q)
    padded = [] if problem.lengths is None else [f"padded ({valid:.0%} are tokens)"]
    extras = ["causal"] * problem.causal + window + padded + [problem.direction] * problem.backward
    return ", ".join([f"batch {problem.batch}", heads, f"dim {problem.head_dim}", problem.dtype, *extras])


def progress(run: Run) -> str:
    """How far a run is: "quick pass · 3 of 12 points · 1.2 s · flash at sequence 512"."""
    phase = f"{run.phase} pass" if run.phase else ""
    points = f"{len(run.measurements)} of {run.sweep.point_count} points"
    return " · ".join(filter(None, [phase, points, f"{run.seconds:.1f} s", run.activity]))
