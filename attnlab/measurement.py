"""One measured point: what one path did with one problem, or why there is no number.

Names carry their unit. A point that could not be measured has a status and a reason, and no number; where a number was
predicted instead, it stands in a field of its own (`predicted_ms`, `predicted_bytes`) and never in a measured one.
On the CPU the same fields hold host time and host memory; `clock` and `memory_source` say how each was obtained.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from attnlab import cost
from attnlab.checked import check_fields, is_finite, shown
from attnlab.finding import Finding
from attnlab.problem import AttentionProblem

STATUS_WORDS = {  # for marks and cells; sentences have verbs of their own
    "ok": "ok",
    "oom": "out of memory",
    "unsupported": "not supported",
    "skipped": "skipped",
    "timeout": "timed out",
    "fault": "fault",
    "suspect": "suspect",
    "unreached": "not reached",
}
STATUSES = tuple(STATUS_WORDS)
UNREACHED = "unreached"  # nobody began it: there was no worker for it any more, and its path has done nothing
CLOCK_SHIFT = 0.05  # a clock that moved by more than this share makes times differ by as much
LISTS = ("samples_ms", "unused", "throttle", "notes")  # tuples here, lists in JSON


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """See the module's opening. Floats are finite; None means not known."""

    problem: AttentionProblem
    path: str  # what was asked for
    status: str  # one of STATUSES
    provider: str = ""  # what really ran: package, version, kernel
    reason: str = ""  # one plain line: what happened and what to do; empty for `ok`
    phase: str = "quick"  # the pass it comes from: quick or refined
    device_ms: float | None = None  # median time on the device of one call, launch cost excluded, L2 as `l2` says
    device_ms_low: float | None = None  # 95 % interval of that median; with fewer than 6 samples their range
    device_ms_high: float | None = None
    samples: int = 0
    samples_ms: tuple[float, ...] = ()  # the raw samples, in time order
    unused: tuple[int, ...] = ()  # places in samples_ms of those kept out of the median; `notes` say why
    l2: str = ""  # "cold": flushed before each sample; "hot": as the call before left it; "" on the host
    graph_ms: float | None = None  # one replay of the call captured as a CUDA graph; None where it cannot be captured
    wall_ms: float | None = None  # what a caller waits: synchronise, call, synchronise
    host_ms: float | None = None  # what the host needs to launch one call
    first_call_s: float | None = None  # the first call: JIT, autotune, handle creation
    # The most memory allocated during one call above what stood before it: the inputs and, where a backward pass is
    # measured alone, what its forward pass has saved.
    peak_bytes: int | None = None
    reserved_bytes: int | None = None  # what the allocator held
    device_used_bytes: int | None = None  # what the driver says is in use on the device
    flops: int | None = None  # exact count for this problem, mask and lengths included
    dense_flops: int | None = None  # as if no pair were masked and padding were tokens
    min_bytes: int | None = None  # each input read once, each output written once, no padding
    error: float | None = None  # relative error of sampled rows against float64, root mean square over the rows
    standard_error: float | None = None  # the same of standard attention in this dtype: what rounding explains
    clock: str = ""  # how the time was taken
    memory_source: str = ""  # how the memory was read
    clock_mhz: float | None = None  # median of the multiprocessors' clock while the samples ran
    clock_mhz_low: float | None = None
    clock_mhz_high: float | None = None
    power_w: float | None = None  # mean of the readings; see nvml.Reading
    temperature_c: float | None = None  # highest
    throttle: tuple[str, ...] = ()  # reasons the driver gave for a lower clock
    launch_bound: bool = False  # the host launches more slowly than the device computes
    predicted_ms: float | None = None  # for a point that was not tried
    predicted_bytes: int | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # of a look at the answers, where the sweep asks for that instead of the time
    in_samples_s: float = 0.0  # time the device spent inside the samples of the last visit, for the cost of a sweep

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status is {shown(self.status)}; legal: {', '.join(STATUSES)}")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not is_finite(value):
                raise ValueError(f"{field.name} is {value}; a measurement holds finite numbers or null")

    @classmethod
    def of(cls, problem: AttentionProblem, path: str, status: str, **more: Any) -> Measurement:
        """A measurement with the exact counts of its problem filled in."""
        counts = {
            "flops": cost.flops(problem),
            "dense_flops": cost.dense_flops(problem),
            "min_bytes": cost.min_bytes(problem),
        }
        return cls(problem=problem, path=path, status=status, **counts, **more)

    @property
    def seq(self) -> int:
        """The sweep's axis: the number of keys."""
        return self.problem.seq_kv

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def foreseen(self) -> bool:
        """An out-of-memory point that was worked out, not tried: it carries its prediction."""
        return self.status == "oom" and self.predicted_bytes is not None

    @property
    def interval_ms(self) -> tuple[float, float] | None:
        """(device_ms_low, device_ms_high), both above 0; None where they are not known: one sample tells nothing of them."""
        known = self.device_ms_low and self.device_ms_high and self.samples != 1
        return (self.device_ms_low, self.device_ms_high) if known else None

    @property
    def clock_moved(self) -> bool:
        return clock_moved(self.clock_mhz_low, self.clock_mhz_high)

    @property
    def tflops(self) -> float | None:
        """Achieved rate in TFLOP/s: exact FLOPs over device time."""
        if self.flops is None or not self.device_ms:
            return None
        return self.flops / self.device_ms / 1e9

    def to_json(self) -> dict[str, Any]:
        """Flat: the problem's fields beside the measurement's own, raw samples included."""
        data = asdict(self)
        data["findings"] = [finding.to_json() for finding in self.findings]
        del data["problem"]
        return {**self.problem.to_json(), **data, **{name: list(data[name]) for name in LISTS}}

    @classmethod
    def from_json(cls, data: Any, where: str = "a measurement") -> Measurement:
        """Reads what to_json wrote. Raises ValueError, which calls it `where` (ProblemError for the problem's fields)."""
        check_fields(cls, data, where, other={f.name for f in fields(AttentionProblem)})
        own = {f.name for f in fields(cls)} - {"problem"}
        problem = AttentionProblem.from_json({k: v for k, v in data.items() if k not in own})
        mine = {k: v for k, v in data.items() if k in own}
        for name in LISTS:
            mine[name] = tuple(mine.get(name, ()))
        mine["findings"] = tuple(map(Finding.from_json, mine.get("findings", ())))
        return cls(problem=problem, **mine)


def clock_moved(low_mhz: float | None, high_mhz: float | None) -> bool:
    """Whether two clocks differ by more than CLOCK_SHIFT of the higher; not where one is unknown."""
    return bool(low_mhz and high_mhz) and high_mhz - low_mhz > CLOCK_SHIFT * high_mhz
