"""What the curves say: how fast time and memory grow, from where a path is faster, and why the speed-up stops growing.

All of it is read off the measured points, in log-log space, where a power of the sequence length s is a straight line:

    growth      the power, by least squares over the stretch where the local slopes agree
    crossover   the sequence length from which a path is faster than standard
    plateau     the sequence length from which the speed-up grows no more, with the rates measured there

The first two come with an interval, which holds the points' own; the third is told only where those are narrow enough. No
launch-bound point is used for time, and none that is not `ok`. The fits assume no law: that attention does s² work is no
input of theirs, and only explains a plateau.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from attnlab import cost, hardware
from attnlab.measurement import Measurement
from attnlab.run import Run
from attnlab.summary import BASELINE, challenger
from attnlab.units import sequence, times

QUANTITIES = ("time", "memory")
FEWEST = 3  # points of a law or a plateau: two always lie on a line
SLOPES_AGREE = 0.3  # a clock 10 % off at one point moves the slopes on both its sides by 0.14, one up and one down
WIDEST = 0.5  # half an interval beyond which an exponent says nothing: three uneven points leave that much open
LEVEL = 0.05  # speed-ups nearer than this are one level: so much can a clock that counts as the same change them

# Two-sided 95 % quantile of Student's t for 1, 2, … degrees of freedom; NIST/SEMATECH e-Handbook of Statistical Methods,
# 1.3.6.7.2. The last one serves for more.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


# Growth


@dataclass(frozen=True, kw_only=True)
class Growth:
    """value = coefficient · s^exponent, fitted over the points from first_seq to last_seq.

    The value is in ms ("time", device_ms) or bytes ("memory", peak_bytes); low and high bound the exponent (95 %).
    """

    path: str
    quantity: str  # one of QUANTITIES
    exponent: float
    low: float
    high: float
    first_seq: int
    last_seq: int
    coefficient: float

    def at(self, seq: int) -> float:
        """The fitted value at `seq`, in ms or bytes."""
        return self.coefficient * seq**self.exponent

    @property
    def law(self) -> str:
        """ "s^2.03 ± 0.02"; without the half width where it rounds to nothing."""
        half = f"{(self.high - self.low) / 2:.2f}"
        return f"s^{self.exponent:.2f}" + (f" ± {half}" if half != "0.00" else "")


def growth(run: Run, path: str, quantity: str) -> Growth | None:
    """How `path` grows with the sequence length; None where no three points at the long end follow one power, or where they
    leave the exponent open by more than WIDEST.

    Short sequences are not there yet (launches, tails, tiles that are not filled), so the fit takes a stretch at the long
    end: the most neighbouring points, at least FEWEST, whose local slopes lie within SLOPES_AGREE of one another. It ends at
    the longest sequence, or one before where that one breaks the law (another kernel, another clock). Memory is no matter
    of launches, so launch-bound points count for it.

    The interval: Student's t with n - 2 degrees of freedom over the residuals, and what the points' own intervals leave
    open, added in quadrature.
    """
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity is {quantity!r}; legal: {', '.join(QUANTITIES)}")
    points = sorted((m for m in run.measurements if m.path == path and _value(m, quantity)), key=lambda m: m.seq)
    stretch = _stretch([(math.log(m.seq), math.log(_value(m, quantity))) for m in points])
    if stretch is None:
        return None
    fitted = points[stretch]
    xs = [math.log(m.seq) for m in fitted]
    exponent, intercept, half = _line(xs, [math.log(_value(m, quantity)) for m in fitted])
    if quantity == "time":
        centre = sum(xs) / len(xs)
        spread = sum((x - centre) ** 2 for x in xs)
        own = [(x - centre) / spread * _log_half_width(m) for x, m in zip(xs, fitted, strict=True)]
        half = math.hypot(half, *own)
    if half > WIDEST:
        return None
    return Growth(
        path=path,
        quantity=quantity,
        exponent=exponent,
        low=exponent - half,
        high=exponent + half,
        first_seq=fitted[0].seq,
        last_seq=fitted[-1].seq,
        coefficient=math.exp(intercept),
    )


def _value(m: Measurement, quantity: str) -> float | None:
    """What is fitted of one point; None where it has no such number."""
    if not m.ok:
        return None
    return m.peak_bytes if quantity == "memory" else (None if m.launch_bound else m.device_ms)


def _stretch(points: Sequence[tuple[float, float]]) -> slice | None:
    """The stretch of (x, y) to fit (see `growth`)."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
    for stop in (len(slopes), len(slopes) - 1):
        start = stop
        while start > 0 and max(slopes[start - 1 : stop]) - min(slopes[start - 1 : stop]) <= SLOPES_AGREE:
            start -= 1
        if stop - start + 1 >= FEWEST:
            return slice(start, stop + 1)
    return None


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """Least squares y = slope · x + intercept: slope, intercept, and half of the slope's 95 % interval."""
    n, x_mean, y_mean = len(xs), sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
    intercept = y_mean - slope * x_mean
    residual = sum((y - slope * x - intercept) ** 2 for x, y in zip(xs, ys, strict=True))
    t = T_95[min(n - 2, len(T_95)) - 1]
    return slope, intercept, t * math.sqrt(residual / (n - 2) / spread)


def _log_half_width(m: Measurement) -> float:
    """Half of the point's interval of time, as a logarithm; 0 where it has none."""
    return 0.0 if m.interval_ms is None else math.log(m.interval_ms[1] / m.interval_ms[0]) / 2


# Speed-up


@dataclass(frozen=True)
class _Pair:
    """Standard and a path at one sequence length, both `ok` and neither launch-bound."""

    seq: int
    standard: Measurement
    other: Measurement

    @property
    def speedup(self) -> float:
        return self.standard.device_ms / self.other.device_ms

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest speed-up that the two intervals leave possible."""
        (a_low, a_high), (b_low, b_high) = (m.interval_ms or (m.device_ms,) * 2 for m in (self.standard, self.other))
        return a_low / b_high, a_high / b_low


def _pairs(run: Run, path: str) -> tuple[list[_Pair], list[int]]:
    """Comparable pairs in order of sequence, and the sequences where a launch-bound point forbids the comparison."""
    pairs, launch_bound = [], []
    for seq in run.sweep.seqs:
        standard, other = run.get(BASELINE, seq), run.get(path, seq)
        if (
            standard is None
            or other is None
            or not (standard.ok and other.ok and standard.device_ms and other.device_ms)
        ):
            continue
        if standard.launch_bound or other.launch_bound:
            launch_bound.append(seq)
        else:
            pairs.append(_Pair(seq, standard, other))
    return pairs, launch_bound


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """From where a path is faster than standard, or why that is not known.

    kind   crossover     faster from `seq` on, slower before
           faster        at every sequence measured, up to the longest where the intervals can tell
           slower        likewise: no crossover in this range
           even          never apart from standard by more than the intervals
           reversed      slower from `seq` on, faster before
           launch-bound  faster wherever the two can be compared; where that begins, the launch cost hides
           unknown       not enough points
    seq    interpolated between measured points, for "crossover" and "reversed" only
    low    the earliest and latest sequence where the intervals let the speed-up be 1; None where that lies beyond the
    high   points that can be compared
    text   one plain clause
    """

    kind: str
    text: str
    seq: int | None = None
    low: int | None = None
    high: int | None = None


def crossover(run: Run, path: str) -> Crossover:
    """Where `path` begins to be faster than standard, interpolated in log-log between neighbouring comparable points."""
    pairs, launch_bound = _pairs(run, path)
    below = [seq for seq in launch_bound if not pairs or seq < pairs[0].seq]
    hidden = f"up to {sequence(below[-1])} the host's launch cost dominates" if below else ""
    if len(pairs) < 2:
        kind = "launch-bound" if below and not pairs else "unknown"
        why = f"no crossover can be told: {hidden}" if kind == "launch-bound" else "not enough points for a crossover"
        return Crossover(kind=kind, text=why)
    apart = [pair.seq for pair in pairs if pair.ends[0] > 1 or pair.ends[1] < 1]
    if not apart:
        whole = f"from {sequence(pairs[0].seq)} to {sequence(pairs[-1].seq)} {path} is"
        return Crossover(kind="even", text=f"{whole} as fast as {BASELINE}, as far as the samples can tell")
    # No winner is announced from intervals that overlap.
    beyond = f"; beyond {sequence(apart[-1])} the samples cannot tell" if apart[-1] < pairs[-1].seq else ""
    pairs = [pair for pair in pairs if pair.seq <= apart[-1]]
    start = f"from {sequence(pairs[0].seq)} to" if len(pairs) > 1 else "at"
    whole = f"{start} {sequence(pairs[-1].seq)} {path} is"
    upward = pairs[-1].speedup > 1
    sign = 1 if upward else -1
    seq = _last_crossing(pairs, lambda pair: sign * math.log(pair.speedup))
    if seq is None and not upward:
        rest = beyond or ": no crossover in this range"
        return Crossover(kind="slower", text=f"{whole} slower than {BASELINE}{rest}")
    if seq is None:
        kind, rest = "faster", beyond or ", at every length measured"
        if below:
            kind, rest = "launch-bound", f"{beyond}; {hidden}"
        return Crossover(kind=kind, text=f"{whole} faster than {BASELINE}{rest}")
    ends = [_last_crossing(pairs, lambda pair, n=n: sign * math.log(pair.ends[n])) for n in (1, 0)]
    earliest, latest = ends if upward else reversed(ends)
    between = f" ({sequence(earliest)} to {sequence(latest)})" if earliest and latest and earliest < latest else ""
    word = "faster" if upward else "slower"
    text = f"from about {sequence(seq)} on{between} {path} is {word} than {BASELINE}{beyond}"
    return Crossover(kind="crossover" if upward else "reversed", seq=seq, low=earliest, high=latest, text=text)


def _last_crossing(pairs: Sequence[_Pair], height: Callable[[_Pair], float]) -> int | None:
    """The sequence where `height` last rises above 0 to stay there, interpolated in log s; None where it does not."""
    if height(pairs[-1]) <= 0:
        return None
    for a, b in reversed(list(pairwise(pairs))):
        if height(a) <= 0:
            below, above = -height(a), height(b)
            share = below / (below + above)
            return round(math.exp(math.log(a.seq) + share * math.log(b.seq / a.seq)))
    return None


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """From where the speed-up grows no more. `seq` and `speedup` are None while it still grows at the longest sequence."""

    text: str  # one or two plain sentences, with the rates measured there
    seq: int | None = None
    speedup: float | None = None


def plateau(run: Run, path: str) -> Plateau | None:
    """The shortest sequence after which no speed-up is higher by more than LEVEL; None with fewer than FEWEST points to
    compare, or where a later one looks higher but the intervals are too wide to tell."""
    pairs, _ = _pairs(run, path)
    if len(pairs) < FEWEST:
        return None
    top = next(
        pair
        for n, pair in enumerate(pairs)
        if not any(p.ends[0] > pair.ends[1] and p.speedup > pair.speedup * (1 + LEVEL) for p in pairs[n + 1 :])
    )
    last = pairs[-1]
    if any(p.seq > top.seq and p.speedup > top.speedup * (1 + LEVEL) for p in pairs):
        return None
    if top is last:
        text = (
            f"The speed-up still grows at {sequence(last.seq)}, the longest that both managed: {times(last.speedup)}."
        )
        return Plateau(text=text)
    grew = (
        f"stops growing at {sequence(top.seq)}" if top is not pairs[0] else f"does not grow from {sequence(top.seq)} on"
    )
    text = f"The speed-up {grew}, {_settled(run, path, top)} {_after(path, top, last)}".rstrip()
    return Plateau(seq=top.seq, speedup=top.speedup, text=text)


def _settled(run: Run, path: str, pair: _Pair) -> str:
    """At what the speed-up settles, and how near both paths are to what bounds them there."""
    cuda = run.device is not None and run.device.kind == "cuda"
    peak = hardware.dense_peak_tflops(run.device.name, pair.other.problem.dtype) if cuda else None
    bandwidth = hardware.bandwidth_tbs(run.device.name) if cuda else None
    # Counted, not measured: FLOPs and bytes alike are in proportion to queries × keys, unless a window cuts the FLOPs alone.
    work = "s²" if run.sweep.seq_q is None else "s"
    why = "" if pair.other.problem.window else f"; the work of both grows as {work}, so only a rate can change it"
    computes = _rates("FLOP/s", _tflops(pair.other)) + _share(_tflops(pair.other), peak, "dense peak")
    moves = _rates("B/s", _tbs(pair.standard)) + _share(_tbs(pair.standard), bandwidth, "bandwidth")
    return f"at {times(pair.speedup)}: {path} computes {computes}, {BASELINE} moves {moves}{why}."


def _after(path: str, top: _Pair, last: _Pair) -> str:
    """What the speed-up does after `top`, told by whose rate changed; empty while it stays."""
    if last.speedup * (1 + LEVEL) >= top.speedup:
        return ""
    fall = math.log(top.speedup / last.speedup)
    rates = (
        (BASELINE, "rises", _tflops(top.standard), _tflops(last.standard)),
        (path, "falls", _tflops(top.other), _tflops(last.other)),
    )
    changes = [
        f"the rate of {name} {verb} from {_rates('FLOP/s', a, b)}"
        for name, verb, a, b in rates
        if math.log(b / a if verb == "rises" else a / b) > fall / 4  # the smaller part of a fall is not its reason
    ]
    return f"At {sequence(last.seq)} it is {times(last.speedup)}, because {' and '.join(changes)}."


def _tflops(m: Measurement) -> float:
    return cost.flops(m.problem) / m.device_ms / 1e9


def _tbs(m: Measurement) -> float:
    """Bytes that the standard path's steps move, over its device time, in TB/s."""
    return sum(step.moved_bytes for step in cost.standard_steps(m.problem)) / m.device_ms / 1e9


def _rates(unit: str, *tera: float) -> str:
    """Rates given in 10^12, in one unit and to three significant digits: "763 TFLOP/s", "92.5 to 127 TFLOP/s", "4.31 GB/s"."""
    scale, prefix = (1, "T") if max(tera) >= 0.1 else (1000, "G")
    values = (value * scale for value in tera)
    return " to ".join(f"{v:,.0f}" if v >= 99.95 else f"{v:#.3g}" for v in values) + f" {prefix}{unit}"


def _share(value: float, of: float | None, name: str) -> str:
    return f" ({100 * value / of:.0f} % of the {name})" if of else ""


# In words


def lines(run: Run) -> tuple[str, ...]:
    """What the curves of standard and its challenger say, a plain sentence each; empty while too little is measured."""
    path = challenger(run)
    names = [name for name in (BASELINE, path) if name in run.sweep.paths]
    said = [_growth_line(run, names, quantity) for quantity in QUANTITIES]
    if path is not None and BASELINE in run.sweep.paths:
        crossing, settled = crossover(run, path), plateau(run, path)
        if crossing.kind != "unknown":
            said.append(crossing.text[:1].upper() + crossing.text[1:] + ".")
        said.append(settled.text if settled and crossing.kind != "even" else "")
    return tuple(filter(None, said))


def _growth_line(run: Run, names: Sequence[str], quantity: str) -> str:
    """ "With the sequence length s, time grows as s^2.05 ± 0.02 for standard (from 1,024 to 8,192) and …"."""
    found = [fit for name in names if (fit := growth(run, name, quantity))]
    if not found:
        return ""
    parts = [f"as {fit.law} for {fit.path} ({_range(run, fit)})" for fit in found]
    what = "time" if quantity == "time" else "the memory added"
    return f"With the sequence length s, {what} grows {' and '.join(parts)}."


def _range(run: Run, fit: Growth) -> str:
    last = max(m.seq for m in run.measurements if m.path == fit.path and _value(m, fit.quantity))
    end = "on" if fit.last_seq == last else f"to {sequence(fit.last_seq)}"
    return f"from {sequence(fit.first_seq)} {end}"
