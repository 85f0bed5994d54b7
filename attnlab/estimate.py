"""Time on paper: what a roof of FLOP/s and bytes/s says that attention takes, and where measured points stand under it.

    time = max(FLOPs / peak, bytes / bandwidth)

The larger side is what bounds it. FLOPs and bytes are those that a path really does: `standard` keeps the scores, so it moves
every step of `cost.standard_steps` and computes no product twice; a flash path moves each tensor once (`cost.min_bytes`).
`compiled` and `sdpa-math` write the scores out too and are taken as `standard`; the one fuses some passes, the other makes
them in float32, so for these two it is an approximation.

Source: Williams, Waterman, Patterson, "Roofline", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab import cost, hardware
from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.units import ms, percent, sequence, times

KEEPS_SCORES = ("standard", "compiled", "sdpa-math")
OFF_SHARE = 0.25  # a prediction further than this from what was measured is told so
MEASURED, DATA_SHEET, GIVEN = "measured", "data sheet", "given"


@dataclass(frozen=True, kw_only=True)
class Roof:
    """The two limits of a device for one dtype. `source` is MEASURED, DATA_SHEET or GIVEN: where they come from."""

    peak_tflops: float  # dense
    bandwidth_tbs: float  # TB/s, 10^12
    device: str
    source: str

    @property
    def ridge(self) -> float:
        """FLOP per byte from which on arithmetic is the limit."""
        return self.peak_tflops / self.bandwidth_tbs

    def tflops_at(self, flop_per_byte: float) -> float:
        """The most TFLOP/s that work of this intensity can reach."""
        return min(self.peak_tflops, self.bandwidth_tbs * flop_per_byte)

    @property
    def provenance(self) -> str:
        """Where the two numbers come from, in words."""
        if self.source == DATA_SHEET:
            return hardware.lookup(self.device).source
        return "a large matrix product and a large copy, measured there" if self.source == MEASURED else "given by hand"

    @property
    def words(self) -> str:
        """ "NVIDIA H200, data sheet: 989.5 TFLOP/s dense, 4.8 TB/s, ridge at 206 FLOP/B"; measured: three digits."""
        peak, bandwidth = (f"{x:,.10g}" if self.source != MEASURED else f"{x:,.3g}" for x in
                           (self.peak_tflops, self.bandwidth_tbs))  # fmt: skip
        return (
            f"{self.device}, {self.source}: {peak} TFLOP/s dense, {bandwidth} TB/s, ridge at {self.ridge:,.0f} FLOP/B"
        )


@dataclass(frozen=True)
class Estimate:
    """A time as two: what the arithmetic takes, and what moving the bytes takes. In ms."""

    compute_ms: float
    memory_ms: float

    @property
    def ms(self) -> float:
        return max(self.compute_ms, self.memory_ms)

    @property
    def bound(self) -> str:
        """ "compute" or "memory"; "compute" where both are equal."""
        return "compute" if self.compute_ms >= self.memory_ms else "memory"


def data_sheet_roof(name: str, dtype: str) -> Roof | None:
    """The roof of the card `name` by its data sheet; None where the table does not know it, or it has no such units."""
    peak, bandwidth = hardware.dense_peak_tflops(name, dtype), hardware.bandwidth_tbs(name)
    return (
        Roof(peak_tflops=peak, bandwidth_tbs=bandwidth, device=name, source=DATA_SHEET) if peak and bandwidth else None
    )


def measured_roof(device: Device, dtype: str) -> Roof | None:
    """What a large matrix product and a large copy reached there; None while that is not known."""
    peak = dict(device.matmul_tflops).get(dtype)
    if not peak or not device.copy_tbs:
        return None
    return Roof(peak_tflops=peak, bandwidth_tbs=device.copy_tbs, device=device.name, source=MEASURED)


def roofs(device: Device | None, dtype: str) -> tuple[Roof, ...]:
    """Those that are known, the one to hold times against first: the data sheet's. Nothing is made up for a card that the
    table lacks, nor for a CPU."""
    if device is None:
        return ()
    sheet = data_sheet_roof(device.name, dtype) if device.kind == "cuda" else None
    return tuple(roof for roof in (sheet, measured_roof(device, dtype)) if roof is not None)


def done_flops(problem: AttentionProblem, path: str) -> int:
    """FLOPs that `path` does of the problem's: one that keeps the scores does not compute QKᵀ twice."""
    return cost.flops(problem) - (cost.recompute_flops(problem) if path in KEEPS_SCORES else 0)


def moved_bytes(problem: AttentionProblem, path: str) -> int:
    """Bytes that `path` moves through device memory (see the module's opening)."""
    if path in KEEPS_SCORES:
        return sum(step.moved_bytes for step in cost.standard_steps(problem))
    return cost.min_bytes(problem)


def intensity(problem: AttentionProblem, path: str) -> float:
    """FLOP per byte moved."""
    return done_flops(problem, path) / moved_bytes(problem, path)


def estimate(problem: AttentionProblem, path: str, roof: Roof) -> Estimate:
    """The floor of `path` under the roof."""
    return of(done_flops(problem, path), moved_bytes(problem, path), roof)


def of(flops: float, bytes_: float, roof: Roof) -> Estimate:
    return Estimate(flops / roof.peak_tflops / 1e9, bytes_ / roof.bandwidth_tbs / 1e9)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One measured point under a roof. `floor` is the least time; `share` is the floor over the time, above 1 where the point
    is faster than the roof allows, which is then flagged and never cut. `predicted` is the same arithmetic with what the
    device was seen to reach, where that is known."""

    measurement: Measurement
    flop_per_byte: float
    tflops: float  # achieved, by the FLOPs that the path does
    floor: Estimate
    predicted: Estimate

    @property
    def share(self) -> float:
        return self.floor.ms / self.measurement.device_ms

    @property
    def impossible(self) -> bool:
        return self.share > 1

    @property
    def deviation(self) -> float:
        """How far the prediction lies from what was measured, as a share of the measured time: -0.4 is 40 % too low."""
        return self.predicted.ms / self.measurement.device_ms - 1

    @property
    def off(self) -> bool:
        return abs(self.deviation) > OFF_SHARE


def standing(m: Measurement, roofs: Sequence[Roof]) -> Standing | None:
    """The point under the first of `roofs`; a measured one among them predicts its time. None where there is no roof, or the
    point has no time. A suspect one has: it is the one to look at."""
    if not roofs or m.status not in ("ok", "suspect") or not m.device_ms:
        return None
    reached = next((roof for roof in roofs if roof.source == MEASURED), roofs[0])
    work = done_flops(m.problem, m.path)
    return Standing(
        measurement=m,
        flop_per_byte=intensity(m.problem, m.path),
        tflops=work / m.device_ms / 1e9,
        floor=estimate(m.problem, m.path, roofs[0]),
        predicted=estimate(m.problem, m.path, reached),
    )


# In words


def sentence(standings: Sequence[Standing], roof: Roof | None, problem: AttentionProblem) -> str:
    """What holds each path back, at the longest sequence that standard and another path managed; where nothing is measured
    the floors of `problem`. Ends with a full stop."""
    if roof is None:
        return "No roof is known of this device in this dtype: choose a card, or give two numbers."
    by_seq: dict[int, dict[str, Standing]] = {}
    for s in standings:
        by_seq.setdefault(s.measurement.seq, {})[s.measurement.path] = s
    both = [seq for seq, here in by_seq.items() if "standard" in here and len(here.keys() - set(KEEPS_SCORES))]
    peak = (
        f"{roof.device}'s dense peak" if roof.source != MEASURED else f"what a matrix product reaches on {roof.device}"
    )
    if not both:
        slow, fast = (estimate(problem, path, roof) for path in ("standard", "flash"))
        return (
            f"At sequence {sequence(problem.seq_kv)} on {roof.device} standard cannot take less than {ms(slow.ms)},"
            f" {slow.bound}-bound, flash {ms(fast.ms)}, {fast.bound}-bound: {times(slow.ms / fast.ms)}."
        )
    here = by_seq[max(both)]
    flash = here.get("flash") or min(
        (s for path, s in here.items() if path not in KEEPS_SCORES), key=lambda s: s.measurement.device_ms
    )
    standard = here["standard"]
    above = max((standard, flash), key=lambda s: s.share)
    if above.impossible:
        or_low = ", or that was measured too low" if roof.source == MEASURED else ""
        return (
            f"At sequence {sequence(max(both))} {above.measurement.path} is faster than the roof of {roof.device} allows"
            f" ({percent(above.share)}): impossible, unless its data came out of a cache{or_low}."
        )
    more = times(
        moved_bytes(standard.measurement.problem, "standard")
        / moved_bytes(flash.measurement.problem, flash.measurement.path)
    )
    held = "memory holds it" if standard.floor.bound == "memory" else "it stays"
    return (
        f"At sequence {sequence(max(both))} {flash.measurement.path} computes {rate(flash.tflops)},"
        f" {percent(flash.tflops / roof.peak_tflops)} of {peak}; standard moves {more} the bytes, and {held} at"
        f" {rate(standard.tflops)}."
    )


def rate(tflops: float) -> str:
    """ "637 TFLOP/s", "17.2 GFLOP/s"."""
    return f"{tflops:,.3g} TFLOP/s" if tflops >= 0.1 else f"{1000 * tflops:,.3g} GFLOP/s"


def model_sentence(standings: Sequence[Standing]) -> str:
    """How well the roof alone foretells the times, and where it is furthest off."""
    if not standings:
        return "Nothing is measured yet."
    off = [s for s in standings if s.off]
    impossible = [s for s in standings if s.impossible]
    flagged = f" {len(impossible)} above the roof: impossible, or out of a cache." if impossible else ""
    if not off:
        return f"The model is within {percent(OFF_SHARE)} of all {len(standings)} measured times.{flagged}"
    worst = max(off, key=lambda s: abs(s.deviation))
    m = worst.measurement
    return (
        f"The model is off by more than {percent(OFF_SHARE)} at {len(off)} of {len(standings)} points, most for {m.path} at"
        f" {sequence(m.seq)}: {ms(worst.predicted.ms)} predicted, {ms(m.device_ms)} measured"
        f"{' (launch-bound)' if m.launch_bound else ''}. It knows no launch, no softmax and no tile that is not full.{flagged}"
    )
