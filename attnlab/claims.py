"""What people say of FlashAttention, each with its setting, what this machine measured, and a verdict by a rule.

A claim is a sweep (or a look at the answers) and a judge of what came out. The rules are plain: a range holds when the
measured figure lies in it at every length of the setting; "at least" and "about" allow what the docstring of each judge
says. A claim about one card is tested on that card alone; a point whose launch costs more than its computing announces no
speed-up. Wrong claims are shown wrong.

    for claim in CLAIMS: print(claim.text, verdict(claim, run, device))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from attnlab.device import Device
from attnlab.measurement import Measurement
from attnlab.problem import FORWARD_BACKWARD, AttentionProblem
from attnlab.run import Run
from attnlab.sweep import TIME, Sweep, default_sweep, powers_of_two
from attnlab.units import sequence, times
from attnlab.verdicts import number

HOLDS, FAILS, CANNOT, OPEN = "holds", "does not hold", "cannot be tested here", "not measured yet"
BUDGET_S = 120.0
NEAR = 0.1  # a rate within a tenth of the one that was published is that rate: another driver, another card of the kind


@dataclass(frozen=True)
class Judged:
    verdict: str  # one of HOLDS, FAILS, CANNOT, OPEN
    measured: str  # what was measured, in a few words


Judge = Callable[[Run], Judged]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`problem` None: the shape that a first visitor sees on the device. `cards`: in whose names one of these words must
    stand; none: any device."""

    name: str
    text: str
    setting: str
    source: str
    judge: Judge
    problem: AttentionProblem | None = None
    seqs: tuple[int, ...] = ()
    paths: tuple[str, ...] = ("standard", "flash")
    cards: tuple[str, ...] = ()
    kind: str = ""  # "cuda" where a CPU says nothing
    task: str = TIME
    paper: str = ""  # whose published figure it is: "FlashAttention-2"; "" for what is only said
    published: tuple[
        float, ...
    ] = ()  # that figure: (TFLOP/s,) at the one length, or (least, most) times standard's speed

    def matches(self, run: Run) -> bool:
        """Whether the published figure is of the run's setting: card, shape, dtype, mask, direction, lengths."""
        if not self.paper or run.device is None or self.untestable(run.device) or run.sweep.task != TIME:
            return False
        same = replace(run.sweep.problem.at_seq(1), lengths=None) == replace(self.problem.at_seq(1), lengths=None)
        whole = run.sweep.problem.lengths is None and run.sweep.seq_q is None
        return same and whole and bool(set(self.seqs) & set(run.sweep.seqs))

    def sweep(self, device_kind: str) -> Sweep:
        """What has to be measured."""
        usual = default_sweep(device_kind)
        seqs = self.seqs or usual.seqs
        problem = (self.problem or usual.problem).at_seq(seqs[-1])
        return Sweep(
            problem=problem, seqs=seqs, paths=self.paths, task=self.task, budget_s=BUDGET_S, refine=self.task == TIME
        )

    def answered_by(self, run: Run) -> bool:
        """Whether a run measured what the claim needs, whatever else it measured."""
        asked = self.sweep(run.device.kind if run.device else "cpu")
        same = replace(run.sweep.problem.at_seq(1), lengths=None) == replace(asked.problem.at_seq(1), lengths=None)
        there = set(asked.seqs) <= set(run.sweep.seqs) and set(asked.paths) <= set(run.sweep.paths)
        return same and there and run.sweep.task == self.task and run.sweep.seq_q is None

    def cut(self, run: Run) -> Run:
        """The run without what the claim does not speak of."""
        seqs = self.seqs or run.sweep.seqs
        kept = tuple(m for m in run.measurements if m.seq in seqs and m.path in self.paths)
        return replace(run, sweep=replace(run.sweep, seqs=seqs, paths=self.paths), measurements=kept)

    def untestable(self, device: Device | None) -> str:
        """Why it cannot be tested on the device, in words; "" when it can, or no device is known yet."""
        if device is None:
            return ""
        if self.cards and not any(card in device.name.replace("-", " ").split() for card in self.cards):
            return f"it speaks of {' or '.join(self.cards)}; this is {device.name}"
        return "it speaks of a GPU" if self.kind == "cuda" and device.kind != "cuda" else ""


def verdict(claim: Claim, run: Run | None, device: Device | None) -> Judged:
    """What came out of a claim on a device; `run` None: it was not measured."""
    if reason := claim.untestable(device):
        return Judged(CANNOT, reason)
    if run is None or not run.reached:
        return Judged(OPEN, "")
    return claim.judge(claim.cut(run))


def sentence(judged: Iterable[Judged]) -> str:
    """How many of the claims came out how: "Of 13 claims 1 holds here, 4 do not hold, …"."""
    verdicts = [one.verdict for one in judged]
    counts = {kind: verdicts.count(kind) for kind in (HOLDS, FAILS, CANNOT, OPEN)}
    words = {
        HOLDS: "holds here" if counts[HOLDS] == 1 else "hold here",
        FAILS: "does not hold" if counts[FAILS] == 1 else "do not hold",
        CANNOT: "cannot be tested here",
        OPEN: "is not measured yet" if counts[OPEN] == 1 else "are not measured yet",
    }
    said = [f"{n} {words[kind]}" for kind, n in counts.items() if n]
    return f"Of {len(verdicts)} claims {', '.join(said)}."


def newest(claim: Claim, runs: Iterable[Run]) -> Run | None:
    """The newest of the runs that answers the claim."""
    return max((run for run in runs if claim.answered_by(run)), key=lambda run: run.created, default=None)


# Judges


def speedup_between(low: float, high: float, path: str = "flash", baseline: str = "standard") -> Judge:
    """Holds when the speed-up lies in the range at every length where neither is launch-bound."""

    def judge(run: Run) -> Judged:
        found = speedups(run, path, baseline)
        if not found:
            return Judged(CANNOT, why_none(run, path, baseline))
        inside = [low <= ratio <= high for ratio in found.values()]
        return Judged(HOLDS if all(inside) else FAILS, in_words(found))

    return judge


def speedup_at_least(least: float, path: str = "flash") -> Judge:
    return speedup_between(least, float("inf"), path)


def speedups(run: Run, path: str, baseline: str = "standard") -> dict[int, float]:
    """Sequence length → device_ms of the baseline over that of the path, between two ok points of which none is
    launch-bound."""
    found = {}
    for seq in run.sweep.seqs:
        ours, theirs = run.get(path, seq), run.get(baseline, seq)
        if ours and theirs and ours.ok and theirs.ok and not ours.launch_bound and not theirs.launch_bound:
            found[seq] = theirs.device_ms / ours.device_ms
    return found


def in_words(found: dict[int, float]) -> str:
    """ "6.9× at 1,024 to 5.0× at 16,384"; all lengths where they are few."""
    said = [f"{times(ratio)} at {sequence(seq)}" for seq, ratio in sorted(found.items())]
    if len(said) <= 3:
        return ", ".join(said)
    low, high = min(found.values()), max(found.values())
    return f"{times(low)} to {times(high)} ({said[0]}, {said[-1]})"


def why_none(run: Run, path: str, baseline: str) -> str:
    """Why no speed-up can be told."""
    points: list[Measurement] = [m for m in run.measurements if m.path in (path, baseline)]
    missing = next((m for m in points if not m.ok), None)
    if missing is not None:
        return f"{missing.path} at {sequence(missing.seq)}: {missing.reason or missing.status}"
    return "launch-bound: a caller waits for the host, so no kernel is faster"


def power(run: Run, path: str, value: Callable[[Measurement], float | None]) -> tuple[float, int, int] | None:
    """(p, first, last): between the lengths `first` and `last`, the longest measured and a quarter of it or less, the value
    grew as s^p. None without two such points. attnlab.growth fits a law to all points; a claim needs no more than this."""
    points = [m for m in run.measurements if m.path == path and m.ok and value(m)]
    last = max(points, key=lambda m: m.seq, default=None)
    first = max((m for m in points if last and m.seq * 4 <= last.seq), key=lambda m: m.seq, default=None)
    if first is None:
        return None
    return math.log(value(last) / value(first)) / math.log(last.seq / first.seq), first.seq, last.seq


def grows_much_slower(run: Run) -> Judged:
    """Holds when the time of standard grows with a power of 1.8 to 2.2 and that of flash with one below 1.5."""
    both = speedups(run, "flash")  # the lengths at which both have a time
    shared = replace(run, measurements=tuple(m for m in run.measurements if m.seq in both))
    found = {path: power(shared, path, lambda m: m.device_ms) for path in ("standard", "flash")}
    if None in found.values():
        return Judged(CANNOT, "two lengths that are not launch-bound are needed, one four times the other")
    standard, flash = (found[path][0] for path in ("standard", "flash"))
    holds = 1.8 <= standard <= 2.2 and flash < 1.5
    first, last = found["flash"][1:]
    where = f"from {sequence(first)} to {sequence(last)}"
    return Judged(HOLDS if holds else FAILS, f"standard s^{standard:.2f}, flash s^{flash:.2f} {where}")


def memory_barely_moves(run: Run) -> Judged:
    """Holds when the memory of flash grows with a power below 0.2 of the sequence length."""
    found = power(run, "flash", lambda m: m.peak_bytes)
    if found is None:
        return Judged(CANNOT, "two lengths are needed, one four times the other")
    exponent, first, last = found
    said = f"flash adds memory as s^{exponent:.2f} from {sequence(first)} to {sequence(last)}"
    return Judged(HOLDS if exponent < 0.2 else FAILS, said)


def fits_16k_for_2k(run: Run) -> Judged:
    """Holds when flash at 16K adds no more memory than standard does at 2K."""
    short, long = run.get("standard", 2_048), run.get("flash", 16_384)
    if not (short and long and short.ok and long.ok):
        return Judged(CANNOT, "standard at 2,048 and flash at 16,384 have to be measured")
    holds = long.peak_bytes <= short.peak_bytes
    said = f"flash at 16,384 adds {long.peak_bytes >> 20:,} MiB, standard at 2,048 {short.peak_bytes >> 20:,} MiB"
    return Judged(HOLDS if holds else FAILS, said)


def memory_ratio(least: dict[int, float]) -> Judge:
    """Holds when standard adds at least so many times what flash adds, at each of the lengths."""

    def judge(run: Run) -> Judged:
        found = {}
        for seq in least:
            standard, flash = run.get("standard", seq), run.get("flash", seq)
            if not (standard and flash and standard.ok and flash.ok and flash.peak_bytes):
                return Judged(CANNOT, f"both have to be measured at {sequence(seq)}")
            found[seq] = standard.peak_bytes / flash.peak_bytes
        holds = all(found[seq] >= ratio for seq, ratio in least.items())
        return Judged(HOLDS if holds else FAILS, in_words(found).replace("×", "× less"))

    return judge


def rate(published_tflops: float, path: str) -> Judge:
    """Holds when the path reaches the published rate, or comes within NEAR of it."""

    def judge(run: Run) -> Judged:
        m = next((m for m in reversed(run.measurements) if m.path == path and m.ok and m.tflops), None)
        if m is None:
            return Judged(CANNOT, why_none(run, path, path))
        holds = m.tflops >= (1 - NEAR) * published_tflops
        return Judged(HOLDS if holds else FAILS, f"{m.tflops:,.0f} TFLOP/s at {sequence(m.seq)}")

    return judge


def bit_for_bit(run: Run) -> Judged:
    """Holds when flash is exactly as far from float64 as standard is: equal numbers are equally far."""
    errors = {}
    for path in ("standard", "flash"):
        m = run.get(path, run.sweep.seqs[-1])
        found = next((f for f in m.findings if f.what == "O"), None) if m else None
        if found is None or found.values.get("relative") is None:
            return Judged(CANNOT, f"{path}: {m.reason if m and m.reason else 'no answer'}")
        errors[path] = (found.values["relative"], found.values.get("max_abs"))
    said = f"{number(errors['flash'][0])} from float64, standard {number(errors['standard'][0])}"
    return Judged(HOLDS if errors["flash"] == errors["standard"] else FAILS, said)


# The claims


SHAPE = AttentionProblem(batch=4, seq_q=512, heads=32, head_dim=128, dtype="bfloat16")
SETTING = "batch 4, heads 32, dim 128, bfloat16, forward"
BERT = AttentionProblem(batch=8, seq_q=512, heads=12, head_dim=64, dtype="float16", direction=FORWARD_BACKWARD)
PAPER = AttentionProblem(batch=1, seq_q=512, heads=16, head_dim=128, dtype="float16")
SAID = "often repeated"
FA1_SPEEDUP, FA2_TFLOPS, FA3_TFLOPS, FA4_TFLOPS = (
    (2.0, 4.0),
    203.0,
    740.0,
    1_613.0,
)  # as published; the claims say where
FA_README = "flash-attention README, Performance, and Dao et al. 2022, arXiv:2205.14135"
CLAIMS = (
    Claim(name="h-series", text="3 to 5× on H-series GPUs", setting=SETTING, source=SAID, problem=SHAPE,
          seqs=powers_of_two(16_384), cards=("H100", "H200"), judge=speedup_between(3, 5)),
    Claim(name="at-512", text="About 3× at 512", setting=SETTING, source=SAID, problem=SHAPE, seqs=(512,), kind="cuda",
          judge=speedup_between(2.5, 3.5)),
    Claim(name="beyond-4k", text="10× and more at 4K and beyond", setting=SETTING, source=SAID, problem=SHAPE,
          seqs=(4_096, 8_192, 16_384), kind="cuda", judge=speedup_at_least(10)),
    Claim(name="optimised", text="2 to 4× over optimised attention",
          setting=f"{SETTING}; optimised: standard under torch.compile", source=SAID, problem=SHAPE,
          seqs=(1_024, 2_048, 4_096), kind="cuda", paths=("compiled", "flash"),
          judge=speedup_between(2, 4, baseline="compiled")),
    Claim(name="growth", text="Time grows with s² for standard, much more slowly for flash",
          setting="the shape that fits this device", source=SAID, judge=grows_much_slower),
    Claim(name="memory-level", text="Flash memory barely moves with s", setting="the shape that fits this device",
          source=SAID, judge=memory_barely_moves),
    Claim(name="16k-for-2k", text="What fitted 2K tokens fits 16K", setting=SETTING, source=SAID, problem=SHAPE,
          seqs=(2_048, 16_384), kind="cuda", judge=fits_16k_for_2k),
    Claim(name="bit-for-bit", text="Bit-for-bit identical", setting="batch 2, heads 4, dim 128, 1,024, bfloat16",
          source=SAID, problem=replace(SHAPE, batch=2, heads=4, kv_heads=4), seqs=(1_024,), task="exactness",
          judge=bit_for_bit),
    Claim(name="fa1-speed", text="FlashAttention: 2 to 4× at 128 to 4K",
          setting="A100, batch 8, heads 12, dim 64, forward + backward", source=FA_README, problem=BERT,
          seqs=powers_of_two(4_096), cards=("A100",), judge=speedup_between(*FA1_SPEEDUP), paper="FlashAttention",
          published=FA1_SPEEDUP),
    Claim(name="fa1-memory", text="FlashAttention: 10× less memory at 2K, 20× at 4K",
          setting="batch 8, heads 12, dim 64, forward + backward", source=FA_README, problem=BERT, seqs=(2_048, 4_096),
          kind="cuda", judge=memory_ratio({2_048: 10, 4_096: 20})),
    Claim(name="fa2-rate", text="FlashAttention-2: 203 TFLOP/s forward + backward at 16K, dim 128",
          setting="A100, batch 1, heads 16", source="Dao 2023, arXiv:2307.08691, figure 4",
          problem=replace(PAPER, direction=FORWARD_BACKWARD), seqs=(16_384,), paths=("flash-attn-2",), cards=("A100",),
          judge=rate(FA2_TFLOPS, "flash-attn-2"), paper="FlashAttention-2", published=(FA2_TFLOPS,)),
    Claim(name="fa3-rate", text="FlashAttention-3: 740 TFLOP/s forward, float16",
          setting="H100, batch 1, heads 16, dim 128, 16K", source="Shah et al. 2024, arXiv:2407.08608, abstract",
          problem=PAPER, seqs=(16_384,), paths=("flash-attn-3",), cards=("H100",), judge=rate(FA3_TFLOPS, "flash-attn-3"),
          paper="FlashAttention-3", published=(FA3_TFLOPS,)),
    Claim(name="fa4-rate", text="FlashAttention-4: 1,613 TFLOP/s forward, bfloat16",
          setting="B200, batch 1, heads 16, dim 128, 32K", source="Zadouri et al. 2026, FlashAttention-4, abstract",
          problem=replace(PAPER, dtype="bfloat16"), seqs=(32_768,), paths=("flash-attn-4",), cards=("B200",),
          judge=rate(FA4_TFLOPS, "flash-attn-4"), paper="FlashAttention-4", published=(FA4_TFLOPS,)),
)  # fmt: skip
