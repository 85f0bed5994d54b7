"""What a card is doing now, as its driver tells (NVML). No torch, no CUDA context, so the web process may ask too.

    >>> reading("GPU-of-another-machine") is None
    True

Where there is no NVIDIA driver, or no nvidia-ml-py, everything here answers None, False or an empty Watch.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

WATCH_EVERY_S = 0.02

# Bits of nvmlDeviceGetCurrentClocksThrottleReasons (NVML API reference, "NvmlClocksEventReasons"); an idle card is no news.
THROTTLE_REASONS = {
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One card at one moment. None where the driver does not say."""

    name: str
    uuid: str
    total_bytes: int | None = None
    used_bytes: int | None = None  # by every process on the card
    clock_mhz: float | None = None  # of the multiprocessors
    power_w: float | None = None  # since Ampere, but for GA100, the driver's mean over the last second
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()  # why the clock is lower than it could be


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What several readings say together: the clock's median and range, mean power, highest temperature."""

    clock_mhz: float | None = None
    clock_mhz_low: float | None = None
    clock_mhz_high: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> Conditions:
        clocks = [r.clock_mhz for r in readings if r.clock_mhz is not None]
        powers = [r.power_w for r in readings if r.power_w is not None]
        return cls(
            clock_mhz=statistics.median(clocks) if clocks else None,
            clock_mhz_low=min(clocks, default=None),
            clock_mhz_high=max(clocks, default=None),
            power_w=statistics.fmean(powers) if powers else None,
            temperature_c=max((r.temperature_c for r in readings if r.temperature_c is not None), default=None),
            throttle=tuple(dict.fromkeys(reason for r in readings for reason in r.throttle)),
        )


@dataclass
class Watch:
    """Reads one card again and again, on a thread of its own, while its with-block runs.

    The thread sleeps between readings, and a reading waits in the driver without holding Python's lock, so the thread
    that launches kernels is not held up. `readings` is complete when the block has ended.
    """

    uuid: str
    every_s: float = WATCH_EVERY_S
    readings: list[Reading] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._watch, name="attnlab-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        with _found(self.uuid) as (nvml, handle):
            while handle is not None:
                self.readings.append(_read(nvml, handle))
                if self._done.wait(self.every_s):
                    return


def reading(uuid: str) -> Reading | None:
    """The card with this UUID ("GPU-…", the prefix may be missing as in torch's own); None when it cannot be asked."""
    with _found(uuid) as (nvml, handle):
        return None if handle is None else _read(nvml, handle)


def cards() -> tuple[Reading, ...]:
    """Every card of this machine, in the driver's order; none where it cannot be asked."""
    with _nvml() as nvml:
        count = 0 if nvml is None else _ask(nvml, nvml.nvmlDeviceGetCount) or 0
        handles = [_ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        return tuple(_read(nvml, handle) for handle in handles if handle is not None)


@contextmanager
def _found(uuid: str) -> Iterator[tuple[Any, Any]]:
    """(pynvml, the card's handle), the latter None when it cannot be asked."""
    with _nvml() as nvml:
        full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        yield nvml, None if nvml is None else _ask(nvml, nvml.nvmlDeviceGetHandleByUUID, full)


def hold_nvml() -> None:
    """Keeps the driver's library open until this process ends: opening it takes tens of ms, a reading then next to none."""
    with contextlib.suppress(ImportError):
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()  # pynvml counts: the library closes when as many have closed it as opened it


def gpu_visible() -> bool:
    """Whether a page may expect an NVIDIA GPU before its worker has said so. Starts neither CUDA nor a process."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    with _nvml() as nvml:
        return nvml is not None and bool(_ask(nvml, nvml.nvmlDeviceGetCount))


@contextmanager
def _nvml() -> Iterator[Any]:
    """The pynvml module, initialised; None when it is not installed or finds no driver."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any, function: Any, *args: Any) -> Any:
    """What the driver answers, None where it refuses: a virtual card has no clock, some have no power sensor."""
    try:
        return function(*args)
    except nvml.NVMLError:
        return None


def _read(nvml: Any, handle: Any) -> Reading:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    clock = _ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
    milliwatts = _ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    temperature = _ask(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    reasons = _ask(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    return Reading(
        name=_text(_ask(nvml, nvml.nvmlDeviceGetName, handle)),
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        total_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        clock_mhz=None if clock is None else float(clock),
        power_w=None if milliwatts is None else milliwatts / 1000,
        temperature_c=None if temperature is None else float(temperature),
        throttle=tuple(text for bit, text in THROTTLE_REASONS.items() if reasons & bit),
    )


def _text(value: str | bytes | None) -> str:
    """Old nvidia-ml-py answers in bytes."""
    return value.decode() if isinstance(value, bytes) else value or ""
