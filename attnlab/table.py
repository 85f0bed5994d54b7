"""A run as lines of text, for terminals and logs: the same figures and words as on the page."""

from __future__ import annotations

import shutil
import time

from attnlab import growth, summary, units, verdicts
from attnlab.measurement import STATUS_WORDS, Measurement
from attnlab.run import Run
from attnlab.sweep import TIME

REFRESH_S = 0.2
L2_WORDS = {"cold": "cold, flushed before each sample", "hot": "hot, as the call before left it"}


def title(run: Run) -> str:
    """What is measured, and on what."""
    queries = [] if run.sweep.seq_q is None else [f"queries {units.sequence(run.sweep.seq_q)}"]
    where = [run.device.name, f"torch {run.device.torch}"] if run.device else []
    return " · ".join([*where, ", ".join([units.shape(run.sweep.problem), *queries])])


def rows(run: Run) -> list[str]:
    """The whole sweep, a line for each sequence length; what is still to come is "…". Of a look at the
    answers a line for each finding."""
    if run.sweep.task != TIME:
        return verdicts.lines(run)
    written = cells(run)
    widths = [max(map(len, column)) for column in zip(*written, strict=True)]
    lines = ["   ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in written]
    if any(m.launch_bound for m in run.measurements):
        lines.append(f"* {summary.TOO_SHORT}")
    return lines


def cells(run: Run) -> list[list[str]]:
    """The same of a sweep as a table of texts, its head first."""
    paths, other = run.sweep.paths, summary.challenger(run)
    compared = other is not None and summary.BASELINE in paths
    ratio = "speed-up" if len(paths) == 2 else f"speed-up of {other}"
    written = [["sequence", *paths, *([ratio] if compared else []), *(f"{path} adds" for path in paths)]]
    for seq in run.sweep.seqs:
        points = [run.get(path, seq) for path in paths]
        speedup = [units.times(summary.headline(run, seq).speedup)] if compared else []
        memory = [units.size(m.peak_bytes) if m and m.ok else "" for m in points]
        written.append([units.sequence(seq), *map(time_cell, points), *speedup, *memory])
    return written


def time_cell(m: Measurement | None) -> str:
    """One point's time with the half width of its interval: "11.9 ms ±2 %", or its status in words."""
    if m is None:
        return "…"
    if m.findings:
        return verdicts.point_words(m)
    if not m.ok:
        return STATUS_WORDS[m.status] + (" (predicted)" if m.foreseen else "")
    return units.ms(m.device_ms) + spread(m) + ("*" if m.launch_bound else "")


def spread(m: Measurement) -> str:
    if not m.device_ms or m.interval_ms is None:
        return ""
    percent = 50 * (m.interval_ms[1] - m.interval_ms[0]) / m.device_ms
    return f" ±{percent:.1f} %" if percent < 0.95 else f" ±{percent:.0f} %"


def point_line(m: Measurement) -> str:
    """One point as it arrives: "standard   512   0.261 ms ±2 %   160 MiB   quick"."""
    words = f"{m.path:<14} {units.sequence(m.seq):>8}   {time_cell(m)}"
    if m.findings:
        return words
    if m.ok:
        return f"{words}   adds {units.size(m.peak_bytes)}   {m.phase}, {m.samples} samples"
    return f"{words}   {m.reason}".rstrip()


def footnotes(run: Run) -> list[str]:
    """What ran under each path's name, how time and memory were obtained, and the state of the cache."""
    lines = []
    for path in run.sweep.paths:
        providers = dict.fromkeys(m.provider for m in run.measurements if m.path == path and m.ok and m.provider)
        lines += [f"{path}: {'; '.join(providers)}"] if providers else []
    good = [m for m in run.measurements if m.ok]
    for name, field in (("time", "clock"), ("memory", "memory_source")):
        sources = dict.fromkeys(getattr(m, field) for m in good if getattr(m, field))
        lines += [f"{name}: {'; '.join(sources)}"] if sources else []
    caches = dict.fromkeys(L2_WORDS[m.l2] for m in good if m.l2 in L2_WORDS)
    return lines + ([f"L2 cache: {'; '.join(caches)}"] if caches else [])


def said(run: Run) -> list[str]:
    """The sentence of the run, and a line for each thing that its curves say."""
    return [summary.sentence(run), *(growth.lines(run) if run.sweep.task == TIME else ())]


class Log:
    """Plain lines, each point once for each pass. `prefix` says of which run, where there are several."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.seen: set[tuple[str, int, str]] = set()
        self.titled = False

    def update(self, run: Run) -> None:
        if run.device is not None and not self.titled:
            self.titled = True
            print(title(run), flush=True)
        for m in run.reached:  # of the others the sentence tells
            if (m.path, m.seq, m.phase) not in self.seen:
                self.seen.add((m.path, m.seq, m.phase))
                done = len({key[:2] for key in self.seen})
                print(f"{self.prefix}[{done}/{run.sweep.point_count}] {point_line(m)}", flush=True)

    def close(self, run: Run) -> None:
        """What was printed stays."""


class Screen:
    """The whole table, drawn over itself. A window too small for it gets the last line only."""

    def __init__(self) -> None:
        self.drawn = 0  # lines that stand on the terminal now
        self.drawn_at = 0.0

    def update(self, run: Run) -> None:
        now = time.monotonic()
        if run.active and now - self.drawn_at < REFRESH_S:
            return
        size = shutil.get_terminal_size()
        lines = [title(run), "", *rows(run), "", f"{run.state}: {units.progress(run)}"]
        if len(lines) >= size.lines:
            lines = lines[-1:]
        self._clear()
        print("\n".join(line[: size.columns - 1] for line in lines), flush=True)
        self.drawn, self.drawn_at = len(lines), now

    def close(self, run: Run) -> None:
        """Makes room for what stays."""
        self._clear()
        print(title(run))

    def _clear(self) -> None:
        if self.drawn:
            print(f"\x1b[{self.drawn}F\x1b[J", end="", flush=True)  # to the first line drawn; erase to the end
            self.drawn = 0
