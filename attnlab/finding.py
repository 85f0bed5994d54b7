"""What a look at a path's answers found: one line of a verdict, with the numbers behind it.

A sweep asks one thing of each path and problem, its task (sweep.TASKS). Where that is not the time, the point's
measurement carries findings:

    exactness     one for each output (O, dQ, dK, dV), and one for the negative control
    determinism   one for each output and mode: how far repeated calls are apart, and what the mode costs
    edges         one for each numerical edge: what the path answers, and what is right
    anatomy       one for each operation of standard attention, or one for all of another path: kernels, time, bytes
    counters      the same, with the bytes that the hardware counted
    support       one for each feature: whether the path runs it, decided by a launch and its answer
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from attnlab.checked import is_finite, is_text, shown

VERDICTS = ("pass", "fail", "unsupported")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`values` holds finite numbers by name, None for one that is not known or not finite; the module that finds them
    (attnlab.measure.exactness and its neighbours) documents the names."""

    what: str  # "O", "dQ", "head dim 320", "rows that see nothing"
    verdict: str  # one of VERDICTS
    text: str = ""  # one plain line
    mode: str = ""  # "default" or "deterministic" where it makes a difference
    values: Mapping[str, float | int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("what", "verdict", "text", "mode"):
            if not is_text(getattr(self, name)):
                raise ValueError(f"a finding's {name} is {shown(getattr(self, name))}; legal: text")
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict is {shown(self.verdict)}; legal: {', '.join(VERDICTS)}")
        if not isinstance(self.values, Mapping):
            raise ValueError("a finding's values are a JSON object")
        for name, value in self.values.items():
            if not is_text(name) or not (value is None or is_finite(value)):
                raise ValueError(f"{shown(name)} is {shown(value)}; a finding holds finite numbers or null")

    @property
    def failed(self) -> bool:
        return self.verdict == "fail"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "values": dict(self.values)}

    @classmethod
    def from_json(cls, data: Any) -> Finding:
        """Reads what to_json wrote. Raises ValueError."""
        if (
            not isinstance(data, dict)
            or set(data) - set(cls.__dataclass_fields__)
            or not {"what", "verdict"} <= set(data)
        ):
            raise ValueError("a finding is a JSON object with what, verdict, text, mode, values")
        return cls(**data)


def finite(value: float) -> float | None:
    """A number that a finding can hold: None for NaN and infinity, which are not JSON."""
    return value if math.isfinite(value) else None
