"""A run in words: the sentence that can be read out on stage, and the headline figures.

    "At sequence 4,096 flash is 6.9× faster and needs 66× less memory; standard runs out of memory at 32,768."

Every figure in it is measured or says that it is not. A speed-up stands only between two `ok` points, and not where the
host's launch cost dominates. What could not be measured is named in words, with its status.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlab import verdicts
from attnlab.measurement import UNREACHED, Measurement, clock_moved
from attnlab.run import Run
from attnlab.sweep import TIME
from attnlab.units import ms, sequence, size, times

BASELINE = "standard"
REASON_LENGTH = 120
TOO_SHORT = "too short to compare: the host's launch cost dominates"
TOO_CLOSE = "as fast as standard, as far as the samples can tell"


@dataclass(frozen=True, kw_only=True)
class Headline:
    """`standard` against the run's flash path at one sequence length. None where not measured.

    speedup       standard_ms / flash_ms, only between two `ok` points that are not launch-bound and whose intervals part
    memory_ratio  peak bytes of standard / those of flash, only between two `ok` points
    note          why a figure is missing, or that the two were measured at different clocks, in words
    """

    path: str | None = None  # the path that is compared with standard
    seq: int | None = None
    standard_ms: float | None = None
    flash_ms: float | None = None
    speedup: float | None = None
    memory_ratio: float | None = None
    note: str = ""


def challenger(run: Run) -> str | None:
    """The path that is compared with standard: `flash`, or else the first other one of the run."""
    others = [path for path in run.sweep.paths if path != BASELINE]
    return "flash" if "flash" in others else next(iter(others), None)


def longest_pair(run: Run) -> int | None:
    """The longest sequence that both standard and its challenger managed."""
    path = challenger(run)
    managed = {name: {m.seq for m in run.measurements if m.path == name and m.ok} for name in (BASELINE, path)}
    return max(managed[BASELINE] & managed[path], default=None)


def headline(run: Run, seq: int | None = None) -> Headline:
    """The figures at `seq`; without it at the longest sequence that both paths managed."""
    path = challenger(run)
    seq = longest_pair(run) if seq is None else seq
    if path is None or seq is None:
        return Headline(path=path, seq=seq, note="" if path is None else "no sequence was measured by both paths")
    standard, flash = run.get(BASELINE, seq), run.get(path, seq)
    both = standard is not None and flash is not None and standard.ok and flash.ok
    launch_bound = both and (standard.launch_bound or flash.launch_bound)
    close = both and not launch_bound and _overlap(standard, flash)
    doubts = [TOO_SHORT] * launch_bound + [f"{path} is {TOO_CLOSE}: the intervals of the two medians overlap"] * close
    missing = [_trouble(run, m) for m in (standard, flash) if m is not None and not m.ok]
    unmeasured = [name for name, m in ((BASELINE, standard), (path, flash)) if m is None]
    notes = [*missing, *(f"{name} is not measured at {sequence(seq)}" for name in unmeasured)]
    clocks = _clocks(standard, flash) if both and not launch_bound else []
    return Headline(
        path=path,
        seq=seq,
        standard_ms=standard.device_ms if standard and standard.ok else None,
        flash_ms=flash.device_ms if flash and flash.ok else None,
        speedup=_ratio(standard.device_ms, flash.device_ms) if both and not doubts else None,
        memory_ratio=_ratio(standard.peak_bytes, flash.peak_bytes) if both else None,
        note="; ".join([*notes, *doubts, *clocks]),
    )


def sentence(run: Run) -> str:
    """The run in one sentence for people (see the module's opening); always ends with a full stop."""
    if run.sweep.task != TIME:
        return verdicts.sentence(run)
    said = "; ".join(part for part in (_comparison(run), *_troubles(run)) if part)
    if run.mark:
        said += f" ({run.mark})"
    return said[:1].upper() + said[1:] + "."


def _comparison(run: Run) -> str:
    """The first part: what the longest comparable point shows, or why nothing can be compared."""
    if not run.reached:
        if run.state in ("failed", "cancelled"):
            why = f": {run.reason.rstrip('.')}" if run.reason else ""
            return f"the run {'failed' if run.state == 'failed' else 'was cancelled'} before anything was measured{why}"
        return "nothing is measured yet"
    path = challenger(run)
    if path is None or BASELINE not in run.sweep.paths:
        return _alone(run)
    top = headline(run)
    if top.seq is None:
        return f"{BASELINE} and {path} were both measured at no sequence, so there is no speed-up"
    memory = _memory_words(run, top)
    standard, flash = run.get(BASELINE, top.seq), run.get(path, top.seq)
    if standard.launch_bound or flash.launch_bound:
        compared = f"at sequence {sequence(top.seq)} {BASELINE} and {path} are {TOO_SHORT}"
        if standard.graph_ms and flash.graph_ms:  # whose replay costs no launching
            compared += f"; as CUDA graphs they take {ms(standard.graph_ms)} and {ms(flash.graph_ms)}"
        return f"{compared}; {path} {memory} there" if memory else compared
    speed = f"{TOO_CLOSE}," if top.speedup is None else _speed_words(top.speedup)
    return f"at sequence {sequence(top.seq)} {path} is {speed}" + (f" and {memory}" if memory else "")


def _alone(run: Run) -> str:
    """For a run without a comparison: the fastest path at the longest sequence measured."""
    measured = [m for m in run.measurements if m.ok]
    only = (
        f"only {run.sweep.paths[0]} is in this run" if len(run.sweep.paths) == 1 else f"{BASELINE} is not in this run"
    )
    if not measured:
        return f"{only}, so there is no speed-up"
    seq = max(m.seq for m in measured)
    best = min((m for m in measured if m.seq == seq), key=lambda m: m.device_ms or 0)
    took = f"{best.path} takes" if len(run.sweep.paths) == 1 else f"the fastest is {best.path} with"
    return f"{only}, so there is no speed-up; at sequence {sequence(seq)} {took} {ms(best.device_ms)}"


def _speed_words(speedup: float) -> str:
    if times(speedup) == times(1.0):
        return f"{TOO_CLOSE},"
    return f"{times(speedup)} faster" if speedup > 1 else f"{times(1 / speedup)} slower"


def _overlap(a: Measurement, b: Measurement) -> bool:
    """Whether the intervals of the two medians have a time in common: then neither is known to be faster."""
    if a.interval_ms is None or b.interval_ms is None:
        return False
    return a.interval_ms[0] <= b.interval_ms[1] and b.interval_ms[0] <= a.interval_ms[1]


def _clocks(a: Measurement, b: Measurement) -> list[str]:
    """That two times are of different clocks, where they are: their ratio is then not the kernels' alone."""
    if not (a.clock_mhz and b.clock_mhz and clock_moved(*sorted((a.clock_mhz, b.clock_mhz)))):
        return []
    return [f"measured at different clocks: {a.clock_mhz:,.0f} and {b.clock_mhz:,.0f} MHz"]


def _memory_words(run: Run, top: Headline) -> str:
    ratio, memory = top.memory_ratio, _memory(run)
    if not ratio:
        return ""
    if times(ratio) == times(1.0):
        return f"needs as much {memory}"
    return f"needs {times(ratio)} less {memory}" if ratio > 1 else f"needs {times(1 / ratio)} more {memory}"


def _troubles(run: Run) -> list[str]:
    """What went otherwise with the two that are compared, or with all where nothing is: once for each path and kind of
    trouble, at the shortest sequence where it did."""
    compared = (BASELINE, challenger(run))
    told = compared if set(compared) <= set(run.sweep.paths) else run.sweep.paths
    said: dict[tuple[str, str], str] = {}
    for m in sorted((m for m in run.reached if not m.ok and m.path in told), key=lambda m: m.seq):
        said.setdefault((m.path, m.status), _trouble(run, m))
    return [*said.values(), unreached(run)] if run.reached else []


def unreached(run: Run) -> str:
    """The points that nobody began, in one line for all of them; "" where there are none."""
    left = [m for m in run.measurements if m.status == UNREACHED]
    if not left:
        return ""
    return f"{len(left)} point{'s were' if len(left) > 1 else ' was'} not reached ({_first_sentence(left[0].reason)})"


def _trouble(run: Run, m: Measurement) -> str:
    """One point that has no number to count, in words: "standard runs out of memory at 32,768"."""
    at = f"at {sequence(m.seq)}"
    if m.foreseen:
        return f"{m.path} is predicted to run out of {_memory(run)} {at} (needs {size(m.predicted_bytes)}; not tried)"
    if m.status == "oom":
        return f"{m.path} runs out of {_memory(run)} {at}"
    words = {
        "unsupported": "cannot run",
        "skipped": "was skipped",
        "timeout": "ran into the time limit",
        "fault": "failed",
        "suspect": "is suspect and not counted",
        "unreached": "was not reached",
    }[m.status]
    # Why nobody came as far is told once for all such points.
    why = "" if m.status == UNREACHED else _first_sentence(m.reason.removeprefix(f"{m.path} "))
    return f"{m.path} {words} {at}" + (f" ({why})" if why else "")


def _first_sentence(reason: str) -> str:
    """A reason short enough to be read out; the whole of it stands at the point."""
    first = reason.split(". ")[0].rstrip(".")
    return first if len(first) <= REASON_LENGTH else first[:REASON_LENGTH].rsplit(" ", 1)[0] + " …"


def _memory(run: Run) -> str:
    return "host memory" if run.device is not None and run.device.kind == "cpu" else "memory"


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None
