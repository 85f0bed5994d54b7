"""What the looks at the answers found, in sentences and rows: for the page, the terminal and whoever reads it out.

    "In bfloat16 at sequence 1,024 flash is 2.6× closer to the truth than standard attention (2.2e-3 against 5.7e-3): it
    is exact attention, not an approximation; it just rounds less on the way through memory."

The truth is float64 on the same inputs. Every figure is measured; what has no number is named in words. Nothing here
speaks of speed: that is summary's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log10

from attnlab import edges, units
from attnlab.finding import Finding
from attnlab.measurement import STATUS_WORDS, UNREACHED, Measurement
from attnlab.problem import FORWARD_BACKWARD, AttentionProblem
from attnlab.run import Run
from attnlab.sweep import SHORTEST, Sweep, powers_of_two
from attnlab.units import ms, sequence, size, times

STANDARD = "standard"
CONTROL = "control"  # how the name of the control that must be rejected begins
RULE = (
    "A path passes where error(path) ≤ 2 × error(standard in the same dtype) + 1e-5, for both measures (and for the largest"
    " one the dtype's spacing at the largest number more); NaN never passes."
)
GENERAL = (
    "Flash is not bit-for-bit equal to standard attention, and no approximation: the same sums, in another order, rounded"
    " elsewhere."
)
WORDS = {"pass": "✓ PASS", "fail": "✗ FAIL", "unsupported": "– unsupported"}
CONTROL_WORDS = {"pass": "✓ rejected", "fail": "✗ NOT rejected", "unsupported": "– cannot be rejected"}
PENDING, NOT_MEASURED = "…", "not measured"
BUDGET_S = 300.0
LIKE_TRUTH = 1e-5  # an error below the rule's floor: agreement, and a ratio of two such errors says nothing


def usual(device_kind: str, task: str) -> Sweep:
    """What a first visitor is shown: a shape that fits the device ("cuda", "cpu") and is done in seconds."""
    gpu = device_kind == "cuda"
    shape = {"batch": 2, "heads": 16, "head_dim": 128} if gpu else {"batch": 1, "heads": 4, "head_dim": 64}
    longer = {"exactness": powers_of_two(8_192 if gpu else 1_024), "determinism": (2_048 if gpu else 512,)}
    seqs = longer.get(task, (SHORTEST,))
    direction = {"direction": FORWARD_BACKWARD} if task == "determinism" else {}
    return look(AttentionProblem(seq_q=seqs[-1], **shape, **direction), seqs, task=task)


def look(
    problem: AttentionProblem, seqs: Sequence[int], paths: Sequence[str] = (STANDARD, "flash"), *, task: str
) -> Sweep:
    """A sweep that looks at answers. Raises ProblemError."""
    return Sweep(problem=problem, seqs=tuple(seqs), paths=tuple(paths), task=task, refine=False, budget_s=BUDGET_S)


def number(value: float | None) -> str:
    """An error in two digits: "2.2e-3", "0"; "–" when not known or not finite."""
    if value is None:
        return "–"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if value else "0"


# Sentences


def sentence(run: Run) -> str:
    """The run in one sentence, whatever its task (but the time); always ends with a full stop."""
    if not run.reached:
        ended = {"failed": "The run failed", "cancelled": "The run was stopped"}.get(run.state)
        why = f": {run.reason.rstrip('.')}" if run.reason else ""
        return f"{ended} before anything was looked at{why}." if ended else "Nothing is measured yet."
    said = exactness([run]) if run.sweep.task == "exactness" else tally([run])
    return with_mark(said, run)


def with_mark(said: str, run: Run) -> str:
    """A sentence about a recorded run says where it comes from."""
    return f"{said.removesuffix('.')} ({run.mark})." if run.mark else said


def exactness(runs: Sequence[Run]) -> str:
    """How close flash and standard are to the truth: a sentence for the coarsest dtype that both were measured in, and
    one for float32; first of all what fails. Empty when there is nothing to say."""
    compared = [found for run in runs if (found := closest(run))]
    coarse = next((found for found in compared if found.run.sweep.problem.dtype != "float32"), None)
    fine = next((found for found in compared if found.run.sweep.problem.dtype == "float32"), None)
    failing = failures(runs)
    said = [f"{len(failing)} of {count(runs)} answers FAIL, the first is {failing[0]}."] if failing else []
    said += [coarse.words()] if coarse else []
    said += [fine.words(at_the_same=coarse is not None and coarse.seq == fine.seq)] if fine else []
    return " ".join(said) or (tally(runs) if any(run.measurements for run in runs) else "")


@dataclass(frozen=True, kw_only=True)
class Closeness:
    """The relative errors of standard and another path at the longest sequence at which both are known."""

    run: Run
    path: str
    output: str
    seq: int
    standard: float
    other: float | None  # None: not finite
    passes: bool

    def words(self, at_the_same: bool = False) -> str:
        """In a sentence; `at_the_same` sequence as one that stands before it, so that it need not be said again."""
        dtype, path = self.run.sweep.problem.dtype, self.path
        where = "" if at_the_same else f" at sequence {sequence(self.seq)}"
        at = f"In {dtype}{where}" + (f", {self.output}," if self.output != "O" else "")
        if self.other is None:
            return f"{at} {path} answers with numbers that are not finite."
        against = f"({number(self.other)} against {number(self.standard)})"
        if not self.passes:
            return f"{at} {path} does not give the right answer {against}."
        worse = max(self.other, self.standard)
        if worse < LIKE_TRUTH:
            who = "both" if at_the_same else f"{path} and standard attention both"
            return f"{at} {who} agree with float64 to {power_of_ten(worse)}."
        ratio = self.standard / self.other if self.other else float("inf")
        exact = "it is exact attention, not an approximation"
        if times(ratio) == times(1.0):
            return f"{at} {path} is as close to the truth as standard attention {against}: {exact}."
        if ratio < 1:
            far = f"{times(1 / ratio)} further from the truth than standard attention {against}"
            return f"{at} {path} is {far}, no more than {dtype} explains."
        near = f"{times(ratio)} closer to the truth than standard attention {against}"
        return f"{at} {path} is {near}: {exact}; it just rounds less on the way through memory."


def closest(run: Run) -> Closeness | None:
    """See Closeness; None where there is nothing to compare."""
    others = [path for path in run.sweep.paths if path != STANDARD]
    path = "flash" if "flash" in others else next(iter(others), None)
    output = run.sweep.problem.outputs[0]
    for seq in reversed(run.sweep.seqs):
        found = finding(run, path, seq, output) if path else None
        reference = finding(run, STANDARD, seq, output)
        standard = reference.values.get("relative") if reference else found and found.values.get("standard_relative")
        if found and found.verdict != "unsupported" and standard is not None:
            other = found.values.get("relative")
            if other is not None or found.failed:
                return Closeness(run=run, path=path, output=output, seq=seq, standard=standard, other=other,
                                 passes=not found.failed)  # fmt: skip
    return None


def power_of_ten(value: float) -> str:
    """The power of ten that an error below 1 stays below: 3.1e-7 → "1e-6"; "the last bit" where there is none."""
    return f"1e-{int(-log10(value))}" if value else "the last bit"


def findings(runs: Iterable[Run]) -> Iterator[tuple[Run, Measurement, Finding]]:
    """Every finding but the controls."""
    for run in runs:
        for m in run.measurements:
            yield from ((run, m, found) for found in m.findings if not found.what.startswith(CONTROL))


def failures(runs: Iterable[Run]) -> list[str]:
    """Where an answer failed: "flash in float16 at 512: dQ"."""
    return [f"{place(run, m)}: {named(found)}" for run, m, found in findings(runs) if found.failed]


def controls_missed(runs: Iterable[Run]) -> list[str]:
    """Where the control, a wrong softmax scale, was not rejected: there the check says nothing."""
    return [
        place(run, m)
        for run in runs
        for m in run.measurements
        if any(found.failed and found.what.startswith(CONTROL) for found in m.findings)
    ]


def count(runs: Iterable[Run]) -> int:
    """How many answers were looked at, controls left out."""
    return sum(found.verdict != "unsupported" for _, _, found in findings(runs))


def troubles(runs: Iterable[Run]) -> list[str]:
    """What should have been looked at and could not: "standard in float16 at 8,192: out of memory"."""
    return [
        f"{place(run, m)}: {STATUS_WORDS[m.status]}"
        for run in runs
        for m in run.reached
        if not m.findings and m.status != "unsupported"
    ]


def shape(run: Run) -> str:
    """The problem without its dtype, which differs from run to run."""
    return units.shape(run.sweep.problem).replace(f", {run.sweep.problem.dtype}", "")


def tally(runs: Sequence[Run]) -> str:
    """How many passed, what failed, what could not be looked at, whether the controls did their work: "All 40 answers
    pass; …"."""
    looked, failing, missed = count(runs), failures(runs), controls_missed(runs)
    if not looked:
        said = "No path could be looked at" if any(run.measurements for run in runs) else "Nothing is measured yet"
    elif failing:
        said = f"{len(failing)} of {looked:,} answers FAIL: {'; '.join(failing[:3])}{' …' if len(failing) > 3 else ''}"
    else:
        said = f"All {looked:,} answers pass" if looked > 1 else "The one answer passes"
    if lost := troubles(runs):
        said += f"; {len(lost)} not looked at, the first is {lost[0]}"
    if unreached := sum(len(run.measurements) - len(run.reached) for run in runs):
        said += f"; {unreached:,} not reached"
    if missed:
        said += f"; a wrong scale was NOT rejected for {missed[0]}, so the check says nothing there"
    elif looked and any(run.sweep.task == "exactness" for run in runs):
        said += "; a wrong softmax scale was rejected each time"
    return said + "."


def place(run: Run, m: Measurement) -> str:
    return f"{m.path} in {run.sweep.problem.dtype} at {sequence(m.seq)}"


def named(found: Finding) -> str:
    return found.what + (f", {found.mode}" if found.mode else "")


def finding(run: Run, path: str, seq: int, what: str, mode: str = "") -> Finding | None:
    m = run.get(path, seq)
    return next((found for found in m.findings if (found.what, found.mode) == (what, mode)), None) if m else None


# Rows


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table of verdicts. `values` are those of the finding (attnlab.measure), empty where there is none."""

    path: str
    dtype: str
    seq: int
    what: str
    verdict: str  # in words, never by a colour alone
    text: str = ""
    mode: str = ""
    values: Mapping[str, float | int | None] = field(default_factory=dict)


def rows(run: Run, seq: int) -> list[Row]:
    """Every path's findings at a sequence length; one row for a path that has none yet or cannot have any."""
    listed = []
    for path in run.sweep.paths:
        m, common = run.get(path, seq), {"path": path, "dtype": run.sweep.problem.dtype, "seq": seq}
        if m is None:
            listed.append(Row(**common, what="all", verdict=PENDING if run.active else NOT_MEASURED))
        elif not m.findings:
            words = WORDS["unsupported"] if m.status == "unsupported" else STATUS_WORDS[m.status]
            listed.append(Row(**common, what="all", verdict=words, text="" if m.status == UNREACHED else m.reason))
        for found in m.findings if m else ():
            words = CONTROL_WORDS if found.what.startswith(CONTROL) else WORDS
            listed.append(
                Row(**common, what=found.what, verdict=words[found.verdict], text=found.text, mode=found.mode,
                    values=found.values)
            )  # fmt: skip
    return listed


def expected(run: Run) -> int:
    """About how many rows a finished table at one sequence length has, so that it can stand at that height from the start."""
    outputs = len(run.sweep.problem.outputs)
    each = {"exactness": outputs + 1, "determinism": 2 * outputs, "edges": len(edges.WHY)}.get(run.sweep.task, 25)
    return each * len(run.sweep.paths)


def lines(run: Run) -> list[str]:
    """The whole run as an aligned table for a terminal."""
    columns = {
        "anatomy": (("ms", "moved", "TB/s"), _cost_cells),
        "counters": (("ms", "moved", "TB/s", "DRAM read", "DRAM written"), _counter_cells),
        "determinism": (("bit-identical", "spread"), _repeat_cells),
    }
    titles, cells_of = columns.get(run.sweep.task, (("max abs", "relative", "allowed"), _error_cells))
    cells = [["path", "sequence", "what", "verdict", *titles, ""]]
    for seq in run.sweep.seqs:
        for row in rows(run, seq):
            what = row.what + (f", {row.mode}" if row.mode else "")
            found = cells_of(row.values) if row.values else [""] * len(titles)
            cells.append([row.path, sequence(row.seq), what, row.verdict, *found, row.text])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _error_cells(v: Mapping[str, float | int | None]) -> list[str]:
    bounds = [b for b in (v.get("bound_max_abs"), v.get("bound_relative"), v.get("allowed")) if b is not None]
    errors = [number(v[name]) if name in v else "" for name in ("max_abs", "relative")]
    return [*errors, " and ".join(map(number, bounds))]


def _repeat_cells(v: Mapping[str, float | int | None]) -> list[str]:
    return [f"{v.get('identical')} of {v.get('repeats')} equal", number(v.get("spread_max_abs"))]


def _cost_cells(v: Mapping[str, float | int | None]) -> list[str]:
    took_ms, moved_bytes = v.get("device_ms"), (v.get("read_bytes") or 0) + (v.get("write_bytes") or 0)
    rate = f"{moved_bytes / took_ms / 1e9:.3g}" if took_ms else "–"
    return [ms(took_ms) if took_ms else "–", size(moved_bytes), rate]


def _counter_cells(v: Mapping[str, float | int | None]) -> list[str]:
    counted = [v.get(name) for name in ("dram_read_bytes", "dram_write_bytes")]
    return [*_cost_cells(v), *("–" if size_bytes is None else size(size_bytes) for size_bytes in counted)]


def point_words(m: Measurement) -> str:
    """One point's findings in a few words: "5 pass", "1 of 5 FAIL", "3 pass, 2 unsupported"."""
    kinds = {kind: sum(found.verdict == kind for found in m.findings) for kind in WORDS}
    if kinds["fail"]:
        return f"{kinds['fail']} of {len(m.findings)} FAIL"
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)


# Determinism


def determinism(run: Run) -> str:
    """What repeated calls do, and what a promise of equal ones costs, in one sentence."""
    if not any(m.findings for m in run.measurements):
        return sentence(run) if run.measurements or run.state in ("failed", "cancelled") else "Nothing is measured yet."
    repeats = [(m.path, found) for _, m, found in findings([run]) if "identical" in found.values]
    apart = [
        f"{path} {found.what} ({found.values['identical']} of {found.values['repeats']} equal)"
        for path, found in repeats
        if found.mode == "default" and found.values["identical"] < found.values["repeats"]
    ]
    broken = failures([run])
    now = "So far by default" if run.active else "By default"
    same = f"{now} every path gives the same bits each time."
    said = [f"{now} not the same bits each time: {', '.join(apart)}." if apart else same]
    said += [f"A promise of equal repeats was BROKEN: {broken[0]}."] if broken else []
    costs = {path: mode_costs(run, path, run.sweep.seqs[-1])[0] for path in run.sweep.paths}
    dearer = [
        f"{path} {times(cost)}" for path, cost in costs.items() if cost and modes_part(run, path, run.sweep.seqs[-1])
    ]
    said += [f"Deterministic mode takes {', '.join(dearer)} the time."] if dearer else []
    return " ".join(said)


def modes_part(run: Run, path: str, seq: int) -> bool:
    """Whether the times of the two modes are further apart than their intervals reach."""
    output = run.sweep.problem.outputs[0]
    times_ms = []
    for mode in ("default", "deterministic"):
        values = found.values if (found := finding(run, path, seq, output, mode)) else {}
        times_ms.append([values.get(f"device_ms{end}") for end in ("_low", "_high")])
    (low, high), (other_low, other_high) = times_ms
    return None not in (low, high, other_low, other_high) and (high < other_low or other_high < low)


def mode_costs(run: Run, path: str, seq: int) -> tuple[float | None, float | None]:
    """(time, memory) of one call in deterministic mode, as multiples of those in default mode; None where not known."""
    output = run.sweep.problem.outputs[0]
    default, promised = (finding(run, path, seq, output, mode) for mode in ("default", "deterministic"))

    def ratio(name: str) -> float | None:
        if default is None or promised is None:
            return None
        before, after = default.values.get(name), promised.values.get(name)
        return after / before if before and after is not None else None

    return ratio("device_ms"), ratio("peak_bytes")
