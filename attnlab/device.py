"""What a worker says of the device it measures on, and of each path there. Plain facts, JSON both ways."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from attnlab.checked import check_fields, shown

KINDS = ("cuda", "cpu")
PATH_STATES = ("ready", "untested", "missing", "broken")


@dataclass(frozen=True, kw_only=True)
class PathStatus:
    """Whether a path can run here. `reason` is one plain line, empty when ready. Raises ValueError for another state."""

    name: str
    state: str  # ready: a tiny launch succeeded; untested: installed; missing: not here; broken: cannot load or launch
    provider: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.state not in PATH_STATES:
            raise ValueError(f"a path's state is {self.state!r}; legal: {', '.join(PATH_STATES)}")

    @property
    def usable(self) -> bool:
        return self.state in ("ready", "untested")

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> PathStatus:
        """Reads what to_json wrote. Raises ValueError."""
        check_fields(cls, data, "a path's status")
        return cls(**data)


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device of one machine, as its worker sees it. Sizes in bytes. Raises ValueError for another kind."""

    kind: str  # one of KINDS
    name: str
    uuid: str  # of the card; of the machine for a CPU
    index: int = 0
    total_bytes: int
    free_bytes: int
    l2_bytes: int = 0
    multiprocessors: int = 0
    compute_capability: str = ""
    threads: int = 0
    host: str = ""
    python: str = ""
    torch: str = ""
    cuda: str = ""
    driver: str = ""
    packages: tuple[tuple[str, str], ...] = ()  # (distribution, version) of the attention packages installed
    matmul_tflops: tuple[tuple[str, float], ...] = ()  # (dtype, TFLOP/s) of a large matrix product, measured here
    copy_tbs: float | None = None  # TB/s, read + write, of a large copy, measured here

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a device's kind is {shown(self.kind)}; legal: {', '.join(KINDS)}")

    @property
    def key(self) -> str:
        """Equal keys measure alike: device and software versions."""
        parts = [self.kind, self.name, self.uuid, self.torch, self.cuda, self.driver, str(self.threads)]
        return "|".join(parts + [f"{name}={version}" for name, version in self.packages])

    @property
    def memory_name(self) -> str:
        return "device memory" if self.kind == "cuda" else "host memory"

    def to_json(self) -> dict[str, Any]:
        pairs = {name: [list(pair) for pair in getattr(self, name)] for name in ("packages", "matmul_tflops")}
        return {**asdict(self), **pairs}

    @classmethod
    def from_json(cls, data: Any, where: str = "a device") -> Device:
        """Reads what to_json wrote. Raises ValueError, which calls it `where`."""
        check_fields(cls, data, where)
        pairs = {name: tuple(map(tuple, data.get(name, ()))) for name in ("packages", "matmul_tflops")}
        return cls(**data | pairs)
