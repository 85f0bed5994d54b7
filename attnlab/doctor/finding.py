"""What a child answered, and what the doctor says of it. Plain facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

# status → (mark, words)
STATUSES = {
    "works": ("✓", "works"),
    "limited": ("!", "works with limits"),
    "broken": ("✗", "does not work"),
    "missing": ("–", "not here"),
    "untried": ("–", "not tried"),
    "checking": ("…", "checking"),
}


@dataclass(frozen=True)
class Answer:
    """What one child said, all its lines together. `end` is "" when it said that it was done, else how it ended, in words."""

    facts: dict[str, Any] = field(default_factory=dict)
    end: str = ""

    @property
    def error(self) -> str:
        return str(self.facts.get("error", ""))

    @property
    def failed(self) -> bool:
        return bool(self.end or self.error)

    def get(self, name: str, default: Any = "") -> Any:
        return self.facts.get(name, default)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing. Raises ValueError for a status that is not one of STATUSES."""

    name: str
    what: str = ""  # for people
    status: str
    version: str = ""
    facts: str = ""  # what there is, in one line
    kind: str = ""  # of the trouble, one word for programs: "abi", "driver-old", "no-kernel-image", …
    cause: str = ""  # why it does not work, in plain words
    remedy: str = ""  # a command
    detail: str = ""  # the error itself, one line, without paths

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"a finding's status is {self.status!r}; legal: {', '.join(STATUSES)}")

    @property
    def mark(self) -> str:
        return STATUSES[self.status][0]

    @property
    def words(self) -> str:
        return STATUSES[self.status][1]

    def to_json(self) -> dict[str, str]:
        return asdict(self)
