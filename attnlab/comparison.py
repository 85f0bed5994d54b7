"""Runs beside one another: what differs between them first, then how their times, or their peaks of memory, stand to one
another, point by point. QUANTITIES are the two; each question below is asked of one.

    differences(runs)        device, driver, torch, packages, providers, shape: a line for each thing that is not equal
    ratios(a, b)             time of b ÷ time of a at every (path, sequence) that both measured, with its interval
    callouts(runs)           the changes beyond the intervals, in words: "flash-attn-4 4.0.0b36 is 6 % slower than 4.0.0b23
                             at 8,192." and "… needs 6 % more memory than …"

The interval of a ratio runs from the least to the greatest that the intervals of the two medians leave possible. A change is
called out only where it leaves out 1, both points are `ok`, neither is launch-bound, and both were timed alike: same way of
timing, same state of the cache, a steady clock, and on one kind of card the same clock. What differs from one run to
the next without a cause, such as the card's temperature, is in no interval; the README says how much that is.

A peak of memory is counted, not sampled, and has no interval: all 52 points that two of the recorded runs share hold the
same bytes. So it is called out from MEMORY_CHANGE on, where both were counted alike, launch-bound or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attnlab.measurement import Measurement, clock_moved
from attnlab.run import Run
from attnlab.sweep import TIME
from attnlab.units import percent, sequence, times

LETTERS = "ABCDEF"  # what the runs are called, in their order; the first is what the others are held against
MOST = len(LETTERS)
NONE = "–"
NAMELESS = ("card", "host", "lengths", "sharp within")  # of these a sentence says the run's letter instead
MEMORY = "memory"
QUANTITIES = (TIME, MEMORY)
MEMORY_CHANGE = 0.01  # the least that reads as a whole percent
DEVICE, SOFTWARE, PACKAGE, PROVIDER, SHAPE, HOW = "device", "software", "package", "provider", "shape", "how"


@dataclass(frozen=True)
class Difference:
    """One thing that is not equal in all runs; a value for each of them, NONE where it is not known."""

    kind: str
    what: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Ratio:
    """One path at one sequence length in two runs; `doubt`: why it is not called out, "" where nothing speaks against it.
    `of` is one of QUANTITIES."""

    reference: Measurement
    other: Measurement
    doubt: str
    of: str = TIME

    @property
    def path(self) -> str:
        return self.other.path

    @property
    def seq(self) -> int:
        return self.other.seq

    @property
    def value(self) -> float:
        """The other's ÷ the reference's: above 1 it is slower, or needs more memory."""
        return amount(self.other, self.of) / amount(self.reference, self.of)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The least and the greatest that the two intervals leave possible; None where one is not known, and of memory."""
        if self.of == MEMORY:
            return None
        below, above = self.reference.interval_ms, self.other.interval_ms
        return (above[0] / below[1], above[1] / below[0]) if below and above else None

    @property
    def apart(self) -> bool:
        """Whether the intervals of the two medians have no time in common; of memory, whether it has changed."""
        if self.of == MEMORY:
            return abs(self.other.peak_bytes - self.reference.peak_bytes) >= MEMORY_CHANGE * self.reference.peak_bytes
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]

    @property
    def called_out(self) -> bool:
        return self.apart and not self.doubt

    @property
    def words(self) -> str:
        """ "6 % slower", "2.5× less"; "as fast, within the intervals", "as much"; or why nothing is said of it."""
        if self.doubt:
            return self.doubt
        return change(self.value, self.of) if self.apart else ALIKE[self.of]


@dataclass(frozen=True)
class Callout:
    """A change of one path in one direction. `weight`: its largest ratio, from 1 on."""

    text: str
    weight: float


ALIKE = {TIME: "as fast, within the intervals", MEMORY: "as much"}
CHANGED = {TIME: ("slower", "faster"), MEMORY: ("more", "less")}


def amount(m: Measurement, of: str) -> float | None:
    """What is compared: milliseconds of the device, or bytes."""
    return m.peak_bytes if of == MEMORY else m.device_ms


def change(ratio: float, of: str = TIME) -> str:
    """A ratio in words: in percent up to twofold, as a factor beyond. Half the memory is 50 % less; half the time is 2.0×
    faster."""
    above, below = CHANGED[of]
    factor, word = (ratio, above) if ratio > 1 else (1 / ratio, below)
    share = 1 - ratio if of == MEMORY and ratio < 1 else factor - 1
    return f"{percent(share) if factor < 2 else times(factor)} {word}"


# What differs


def differences(runs: Sequence[Run]) -> tuple[Difference, ...]:
    """What is not equal in all runs, the device first."""
    names = list(dict.fromkeys(name for run in runs if run.device for name, _ in run.device.packages))
    paths = list(dict.fromkeys(path for run in runs for path in run.sweep.paths))
    facts: list[tuple[str, str, Callable[[Run], object]]] = [
        (DEVICE, "device", lambda run: run.device and run.device.name),
        (DEVICE, "card", lambda run: run.device and run.device.uuid),
        (DEVICE, "host", lambda run: run.device and run.device.host),
        (DEVICE, "threads", lambda run: run.device and run.device.threads),
        (SOFTWARE, "driver", lambda run: run.device and run.device.driver),
        (SOFTWARE, "CUDA", lambda run: run.device and run.device.cuda),
        (SOFTWARE, "torch", lambda run: run.device and run.device.torch),
        (SOFTWARE, "Python", lambda run: run.device and run.device.python),
        *((PACKAGE, name, lambda run, name=name: run.device and dict(run.device.packages).get(name)) for name in names),
        *((PROVIDER, path, lambda run, path=path: "; ".join(providers(run, path))) for path in paths),
        (SHAPE, "batch", lambda run: run.sweep.problem.batch),
        (SHAPE, "heads", lambda run: run.sweep.problem.heads),
        (SHAPE, "KV heads", lambda run: run.sweep.problem.kv_heads),
        (SHAPE, "head dim", lambda run: run.sweep.problem.head_dim),
        (SHAPE, "dtype", lambda run: run.sweep.problem.dtype),
        (SHAPE, "causal mask", lambda run: "yes" if run.sweep.problem.causal else "no"),
        (SHAPE, "window", lambda run: run.sweep.problem.window),
        (SHAPE, "direction", lambda run: run.sweep.problem.direction),
        (SHAPE, "queries", lambda run: "as many as keys" if run.sweep.seq_q is None else run.sweep.seq_q),
        (SHAPE, "lengths", _lengths),
        (SHAPE, "task", lambda run: run.sweep.task),
        (HOW, "L2 cache", lambda run: run.sweep.l2 if run.device is None or run.device.kind == "cuda" else None),
        (HOW, "sharp within", lambda run: percent(run.sweep.precision)),
    ]
    found = []
    for kind, what, fact in facts:
        values = tuple(_text(fact(run)) for run in runs)
        measured = {value for value in values if value != NONE} if kind == PROVIDER else values
        if len(set(measured)) > 1:
            found.append(Difference(kind, what, values))
    if any(d.what == "device" for d in found):  # other cards have other numbers, and everybody knows
        found = [d for d in found if d.what not in ("card", "threads")]
    return tuple(found)


def _text(value: object) -> str:
    return f"{value:,}" if type(value) is int and value else str(value or NONE)


def _lengths(run: Run) -> str:
    problem = run.sweep.problem
    return "" if problem.lengths is None else f"{problem.tokens / (problem.batch * problem.seq_q):.1%} are tokens"


def providers(run: Run, path: str) -> list[str]:
    """What ran under a path's name, package and version, without the kernel."""
    return list(dict.fromkeys(provider(m) for m in run.measurements if m.path == path and m.ok and m.provider))


def provider(m: Measurement) -> str:
    return m.provider.split(" · ")[0]


# How they stand to one another


def ratios(reference: Run, other: Run, of: str = TIME) -> tuple[Ratio, ...]:
    """Of every (path, sequence) that both measured, in the order of the other run; none for looks at the answers."""
    if reference.sweep.task != TIME or other.sweep.task != TIME:
        return ()
    same_card = reference.device is not None and other.device is not None and reference.device.name == other.device.name
    there = {(m.path, m.seq): m for m in reference.measurements if m.ok and amount(m, of)}
    pairs = ((there.get((m.path, m.seq)), m) for m in other.measurements if m.ok and amount(m, of))
    return tuple(
        Ratio(a, b, _doubt_of_memory(a, b) if of == MEMORY else _doubt(a, b, same_card), of)
        for a, b in pairs
        if a is not None
    )


def _doubt_of_memory(a: Measurement, b: Measurement) -> str:
    alike = a.memory_source == b.memory_source
    return "" if alike else f"counted differently: {a.memory_source or 'unknown'}, {b.memory_source or 'unknown'}"


def _doubt(a: Measurement, b: Measurement, same_card: bool) -> str:
    if a.launch_bound or b.launch_bound:
        return "launch-bound"
    if a.clock != b.clock or a.l2 != b.l2:
        return f"timed differently: {a.clock or 'unknown'} and {b.clock or 'unknown'}"
    if a.clock_moved or b.clock_moved:
        return "the clock moved meanwhile"
    if same_card and a.clock_mhz and b.clock_mhz and clock_moved(*sorted((a.clock_mhz, b.clock_mhz))):
        return f"at different clocks: {a.clock_mhz:,.0f} and {b.clock_mhz:,.0f} MHz"
    return "" if a.interval_ms and b.interval_ms else "no interval is known"


def callouts(runs: Sequence[Run], of: str = TIME) -> tuple[Callout, ...]:
    """Of each run after the first against the first: what is slower or faster beyond the intervals, or what needs more or
    less memory; largest first."""
    found = []
    for letter, other in zip(LETTERS[1:], runs[1:], strict=False):
        pair = (runs[0], other)
        differ = differences(pair)
        by_path: dict[tuple[str, bool], list[Ratio]] = {}
        for ratio in ratios(*pair, of):
            if ratio.called_out:
                by_path.setdefault((ratio.path, ratio.value > 1), []).append(ratio)
        for changed in by_path.values():
            subject, than = _whom(changed[0], differ, letter)
            is_or_needs = f"needs {_how_much(changed)} memory" if of == MEMORY else f"is {_how_much(changed)}"
            text = f"{subject} {is_or_needs} {than} at {_at(changed)}."
            found.append(Callout(text, max(max(r.value, 1 / r.value) for r in changed)))
    return tuple(sorted(found, key=lambda callout: -callout.weight))


def sentence(runs: Sequence[Run], of: str = TIME) -> str:
    """The comparison in one sentence: its largest change, or that there is none."""
    told, compared = callouts(runs, of), [r for other in runs[1:] for r in ratios(runs[0], other, of)]
    if told:
        more = len(told) - 1
        return told[0].text.removesuffix(".") + (f"; {more} more change{'s' * (more > 1)} below." if more else ".")
    if not compared:
        return "These runs have no path and sequence length that both measured, so there is no ratio."
    doubted = sum(bool(r.doubt) for r in compared)
    alike = len(compared) - doubted
    beyond = f"by {percent(MEMORY_CHANGE)} of memory" if of == MEMORY else "beyond the intervals"
    said = f"{alike} point{'s' * (alike != 1)} compared, and none differs {beyond}"
    return f"{said}{f'; {doubted} cannot be compared' if doubted else ''}."


def _whom(ratio: Ratio, differ: Sequence[Difference], letter: str) -> tuple[str, str]:
    """(what is slower, than what): by the device, else by the one thing that differs where it is one, else
    by the runs' letters."""
    before, after = provider(ratio.reference), provider(ratio.other)
    package, _, old = before.rpartition(" ")
    same_package = package and package == after.rpartition(" ")[0]
    if device := next((d for d in differ if d.what == "device"), None):
        return ratio.path, f"on {device.values[-1]} than on {device.values[0]}"
    others = [d for d in differ if d.kind not in (PACKAGE, PROVIDER)]
    if not others and before != after:
        return (after, f"than {old}") if same_package else (f"{ratio.path} ({after})", f"than with {before}")
    named = [d for d in others if d.what not in NAMELESS and NONE not in d.values]
    if len(others) == 1 == len(named) and (before == after or package == "PyTorch"):
        (one,) = named
        return ratio.path, f"with {one.what} {one.values[-1]} than with {one.what} {one.values[0]}"
    return ratio.path, f"in {letter} than in {LETTERS[0]}"


def _how_much(changed: Sequence[Ratio]) -> str:
    """ "6 % slower", "3 to 6 % slower", "1.5× to 2.5× less"."""
    values = sorted((r.value for r in changed), key=lambda value: max(value, 1 / value))
    least, most = (change(value, changed[0].of) for value in (values[0], values[-1]))
    if least == most:
        return most
    start, word = least.rsplit(" ", 1)
    if most.endswith(f" % {word}"):
        start = start.removesuffix(" %")
    return f"{start} to {most}"


def _at(changed: Sequence[Ratio]) -> str:
    seqs = [sequence(seq) for seq in sorted(r.seq for r in changed)]
    if len(seqs) > 4:
        return f"{len(seqs)} lengths from {seqs[0]} to {seqs[-1]}"
    return " and ".join(filter(None, [", ".join(seqs[:-1]), seqs[-1]]))
