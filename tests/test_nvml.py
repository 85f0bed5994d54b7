import sys
import time
from types import SimpleNamespace

import pytest

from attnlab import nvml as nvml_module


class FakeError(Exception):
    pass


class FakeNvml(SimpleNamespace):
    """What attnlab.nvml uses of pynvml: cards by index and UUID, each answer taken from a dictionary or refused."""

    NVMLError = FakeError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, cards, init_error=None):
        super().__init__(cards=cards, init_error=init_error, open=0)

    def nvmlInit(self):
        if self.init_error:
            raise FakeError(self.init_error)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        if self.cards == ["lost"]:
            raise FakeError("GPU is lost")
        return len(self.cards)

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for card in self.cards:
            if card["uuid"] in (uuid, uuid.encode()):
                return card
        raise FakeError("Not Found")

    def _answer(self, card, what):
        if what not in card:
            raise FakeError("Not Supported")
        return card[what]

    def nvmlDeviceGetName(self, card):
        return self._answer(card, "name")

    def nvmlDeviceGetUUID(self, card):
        return self._answer(card, "uuid")

    def nvmlDeviceGetMemoryInfo(self, card):
        return SimpleNamespace(total=self._answer(card, "total"), used=self._answer(card, "used"))

    def nvmlDeviceGetClockInfo(self, card, kind):
        assert kind == self.NVML_CLOCK_SM
        return self._answer(card, "clock")

    def nvmlDeviceGetPowerUsage(self, card):
        return self._answer(card, "milliwatts")

    def nvmlDeviceGetTemperature(self, card, sensor):
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._answer(card, "celsius")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card):
        return self._answer(card, "reasons")


H200 = dict(
    name="NVIDIA H200",
    uuid="GPU-12ab",
    total=150_754_820_096,
    used=1 << 30,
    clock=1980,
    milliwatts=698_400,
    celsius=61,
    reasons=0x4 | 0x1,
)
VIRTUAL = dict(name=b"GRID A100", uuid=b"GPU-77cd")


@pytest.fixture
def nvml(monkeypatch):
    def install(*cards, init_error=None):
        fake = FakeNvml(list(cards), init_error)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


def test_reading_by_uuid(nvml):
    fake = nvml(VIRTUAL, H200)
    expected = nvml_module.Reading(
        name="NVIDIA H200",
        uuid="GPU-12ab",
        total_bytes=150_754_820_096,
        used_bytes=1 << 30,
        clock_mhz=1980.0,
        power_w=698.4,
        temperature_c=61.0,
        throttle=("power cap",),
    )
    assert nvml_module.reading("GPU-12ab") == expected
    assert nvml_module.reading("12ab") == expected  # torch leaves the prefix out
    assert nvml_module.reading("GPU-other") is None
    assert fake.open == 0


def test_sensor_that_refuses_is_empty_and_the_rest_stays(nvml):
    nvml(VIRTUAL)
    assert nvml_module.reading("GPU-77cd") == nvml_module.Reading(name="GRID A100", uuid="GPU-77cd")


def test_no_driver_and_no_package(nvml, monkeypatch):
    nvml(H200, init_error="Driver Not Loaded")
    assert nvml_module.reading("GPU-12ab") is None and not nvml_module.gpu_visible()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises ImportError
    assert nvml_module.reading("GPU-12ab") is None and not nvml_module.gpu_visible()


def test_held_open_a_reading_need_not_open_it_again(nvml, monkeypatch):
    fake = nvml(H200)
    nvml_module.hold_nvml()
    nvml_module.reading("GPU-12ab")
    assert fake.open == 1
    nvml(init_error="Driver Not Loaded")
    nvml_module.hold_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml_module.hold_nvml()


def test_gpu_visible(nvml, monkeypatch):
    nvml(H200)
    assert nvml_module.gpu_visible()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not nvml_module.gpu_visible()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert nvml_module.gpu_visible()
    nvml()
    assert not nvml_module.gpu_visible()
    nvml("lost")
    assert not nvml_module.gpu_visible()


def test_a_watch_reads_the_right_card_until_its_block_ends(nvml):
    nvml(VIRTUAL, H200)
    with nvml_module.Watch("12ab", every_s=0.001) as watch:
        for _ in range(5000):
            if len(watch.readings) >= 3:
                break
            time.sleep(0.001)
    taken = len(watch.readings)
    assert taken >= 3
    assert {r.uuid for r in watch.readings} == {"GPU-12ab"}
    time.sleep(0.01)
    assert len(watch.readings) == taken


def test_a_watch_without_a_driver_holds_nothing(nvml):
    nvml(init_error="Driver Not Loaded")
    with nvml_module.Watch("12ab") as watch:
        pass
    assert watch.readings == [] and nvml_module.Conditions.of(watch.readings) == nvml_module.Conditions()


def test_conditions_hold_the_range_of_the_clock():
    def at(clock_mhz, power_w, throttle=()):
        return nvml_module.Reading(name="H200", uuid="1", clock_mhz=clock_mhz, power_w=power_w, throttle=throttle)

    seen = nvml_module.Conditions.of([at(1980.0, 300.0), at(1605.0, 700.0, ("power cap",)), at(1965.0, None)])
    assert (seen.clock_mhz_low, seen.clock_mhz, seen.clock_mhz_high) == (1605.0, 1965.0, 1980.0)
    assert seen.power_w == 500.0 and seen.throttle == ("power cap",) and seen.temperature_c is None
