"""A talk gone through beforehand: what each step brought, what will take long or fail; and on stage, which result is shown.

On stage a step measures anew. The result of the rehearsal waits beside it, and is shown when the live one is late: it has
no point after LATE_S. It stays until the live one has caught up, so that nothing is taken away that was there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from attnlab import units
from attnlab.measurement import STATUS_WORDS
from attnlab.run import Run
from attnlab.talk import Step

LATE_S = 3.0
UNREHEARSED = "not rehearsed"
WAITS, GOOD, SLOW, BAD, NOTHING = VERDICTS = ("waits", "ready", "slow", "fails", "nothing to measure")


def late(live: Run | None, waited_s: float) -> bool:
    """Whether the live result is not there although it should be."""
    return waited_s >= LATE_S and (live is None or not live.measurements)


def on_stage(live: Run | None, kept: Run | None, was_late: bool) -> tuple[Run | None, bool]:
    """(the run to show, whether it is the kept one). `was_late`: `late` has been true since the run was asked for."""
    if kept is None or not kept.measurements:
        return live, False
    if live is None:
        return kept, True
    if live.active:
        behind = len(live.measurements) < len(kept.measurements)
        return (kept, True) if was_late and behind else (live, False)
    ended_early = live.state != "done" or not any(m.ok for m in live.measurements)
    return (kept, True) if ended_early and any(m.ok for m in kept.measurements) else (live, False)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the rehearsal says of one step; `verdict` is one of VERDICTS."""

    headline: str
    verdict: str
    words: str


def row(step: Step, device_kind: str, run: Run | None, recorded: Run | None, refusal: str = "") -> Row:
    """`run` is the rehearsal's of this step, None before there is one; `recorded` what it shows where it measures nothing;
    `refusal` why it cannot be asked for at all."""
    verdict, words = _judged(step, device_kind, run, recorded, refusal)
    return Row(headline=step.headline, verdict=verdict, words=words)


def sentence(rows: Sequence[Row]) -> str:
    """What the rehearsal found, to be read at a glance; steps by their numbers."""
    measured = [row for row in rows if row.verdict != NOTHING]
    waiting = sum(row.verdict == WAITS for row in measured)
    if measured and waiting == len(measured) and all(row.words == UNREHEARSED for row in measured):
        return "Not rehearsed: every step is measured once, and its result kept for the stage."
    said = [f"{len(measured) - waiting} of {len(measured)} steps that measure are rehearsed"]
    for verdict, words in ((BAD, "will fail"), (SLOW, f"take longer than {LATE_S:g} s")):
        named = [str(number) for number, row in enumerate(rows, start=1) if row.verdict == verdict]
        said += [f"{words}: {', '.join(named)}"] if named else []
    return "; ".join(said) + "."


def _judged(step: Step, device_kind: str, run: Run | None, recorded: Run | None, refusal: str) -> tuple[str, str]:
    if refusal:
        return BAD, refusal
    if step.sweep(device_kind) is None:
        if step.recorded and recorded is None:
            return BAD, f"no run {step.recorded} is recorded here: nothing will be shown"
        return NOTHING, recorded.mark if recorded else "arithmetic"
    if run is None:
        return WAITS, UNREHEARSED
    if run.active:
        return WAITS, units.progress(run) if run.state == "running" else "queued"
    lost = [*([f"{run.state}: {run.reason}".rstrip(": ")] if run.state != "done" else []), *_troubles(run)]
    if not any(m.ok for m in run.measurements):
        return BAD, "; ".join(lost) or "nothing was measured"
    took = f"measured in {units.seconds(run.seconds)}"
    slow = [f"longer than {LATE_S:g} s"] if run.seconds > LATE_S else []
    verdict = BAD if any(m.status in ("fault", "timeout") for m in run.measurements) or run.state != "done" else GOOD
    return SLOW if slow and verdict == GOOD else verdict, "; ".join([took, *slow, *lost])


def _troubles(run: Run) -> list[str]:
    """What has no number, once for each path and status, at the shortest sequence, with its reason."""
    troubles = [m for m in sorted(run.reached, key=lambda m: m.seq) if not m.ok]
    counts = Counter((m.path, m.status) for m in troubles)
    first = {(m.path, m.status): m for m in reversed(troubles)}
    said = []
    for (path, status), count in counts.items():
        m = first[path, status]
        more = f" and {count - 1} more" if count > 1 else ""
        why = f" ({m.reason.split('. ')[0].rstrip('.')})" if m.reason and status != "oom" else ""
        said.append(f"{path} {STATUS_WORDS[status]} at {units.sequence(m.seq)}{more}{why}")
    return said
