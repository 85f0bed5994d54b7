"""What a visitor of a public server may ask for, so that nobody holds the device for long. ATTNLAB_PUBLIC sets it:

    ATTNLAB_PUBLIC=1                                         the limits below
    ATTNLAB_PUBLIC=seq=4096,tokens=8192,seconds=10,queue=4   others; what is left out is as below

On such a server nothing is imported, and a visitor neither sets the time of a run nor tries to run out of memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from attnlab.sweep import BUDGET_MAX_S, Sweep
from attnlab.units import seconds, sequence

VARIABLE = "ATTNLAB_PUBLIC"
LEGAL = "1, or some of seq=16384,tokens=262144,seconds=20,queue=8: whole numbers from 1"


@dataclass(frozen=True)
class Limits:
    """seq: longest sequence, of queries and of keys; tokens: most of them in one problem, batch x sequence; budget_s: seconds
    that a run may take, by plan and, where that was wrong, by the clock; queue: runs that may wait."""

    seq: int = 16_384
    tokens: int = 262_144
    budget_s: int = 20
    queue: int = 8

    def refusal(self, sweep: Sweep) -> str:
        """Why the sweep is not for this server, in one line; "" when it is."""
        longest, batch = max(sweep.seqs[-1], sweep.seq_q or 0), sweep.problem.batch
        if longest > self.seq:
            return f"this public server measures up to sequence {sequence(self.seq)}, not {sequence(longest)}"
        if batch * longest > self.tokens:
            return f"this public server measures up to {self.tokens:,} tokens (batch × sequence), not {batch * longest:,}"
        return ""

    def cut(self, sweep: Sweep) -> Sweep:
        """The sweep as it may be run."""
        return replace(sweep, budget_s=min(sweep.budget_s, self.budget_s), try_oom=False)

    def words(self) -> str:
        """What stands where the settings are on a server of one's own."""
        most = f"sequences up to {sequence(self.seq)}, {self.tokens:,} tokens (batch × sequence)"
        return f"A public server: {most}, {seconds(self.budget_s)} a run."


def public(environment: Callable[[str, str], str] = os.environ.get) -> Limits | None:
    """The limits that the environment sets; None on a server of one's own. Raises ValueError, with the legal values."""
    text = environment(VARIABLE, "").strip()
    if text in ("", "0"):
        return None
    if text == "1":
        return Limits()
    names = {"seq": "seq", "tokens": "tokens", "seconds": "budget_s", "queue": "queue"}
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in names or not value.isascii() or not value.isdigit() or not 1 <= int(value) <= BUDGET_MAX_S * 100:
            raise ValueError(f"{VARIABLE} is {text[:80]!r}; legal: {LEGAL}")
        found[names[name]] = int(value)
    return Limits(**found)
