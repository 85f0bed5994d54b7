import sys
from types import SimpleNamespace

import pytest

from attnlab import hardware


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("NVIDIA H200", "bfloat16", 989.5),  # F19 and its kind: names that contain one another
        ("NVIDIA H200", "float16", 989.5),
        ("NVIDIA H200", "float32", 67),
        ("NVIDIA H200 NVL", "bfloat16", 835.5),
        ("NVIDIA H20", "bfloat16", 148),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 NVL", "bfloat16", 835.5),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312),
        ("A100-SXM4-80GB", "bfloat16", 312),
        ("NVIDIA A100-PCIE-40GB", "bfloat16", 312),
        ("NVIDIA A10", "bfloat16", 125),
        ("NVIDIA A10G", "bfloat16", 70),
        ("NVIDIA L4", "bfloat16", 121),
        ("NVIDIA L40", "bfloat16", 181.05),
        ("NVIDIA L40S", "bfloat16", 362.05),
        ("NVIDIA RTX A6000", "bfloat16", 154.8),
        ("Tesla T4", "float16", 65),
        ("Tesla T4", "bfloat16", None),
    ],
)
def test_dense_peak_of_the_exact_card(name, dtype, tflops):
    assert hardware.dense_peak_tflops(name, dtype) == tflops


@pytest.mark.parametrize(
    "name",
    [
        "Some Future GPU",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",  # a slice has a fraction of the card
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100",
        "NVIDIA L40S-48Q",
        "NVIDIA",
        "",
    ],
)
def test_unknown_card_has_no_peak(name):
    assert hardware.lookup(name) is None
    assert hardware.dense_peak_tflops(name, "bfloat16") is None
    assert hardware.bandwidth_tbs(name) is None


def test_h200_ridge():
    flop_per_byte = hardware.dense_peak_tflops("NVIDIA H200", "bfloat16") / hardware.bandwidth_tbs("NVIDIA H200")
    assert round(flop_per_byte) == 206  # F19


def test_unknown_dtype_has_no_peak():
    assert hardware.dense_peak_tflops("NVIDIA H200", "int8") is None


def test_table_is_consistent():
    names = [hardware._plain(name) for peak in hardware.PEAKS for name in peak.names]
    assert len(names) == len(set(names))
    for peak in hardware.PEAKS:
        assert peak.source
        assert peak.tensor_tflops > peak.float32_tflops > peak.bandwidth_tbs > 0


class FakeError(Exception):
    pass


class FakeNvml(SimpleNamespace):
    """What hardware.py uses of pynvml: cards by index and UUID, each answer taken from a dictionary or refused."""

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
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

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


H200 = dict(
    name="NVIDIA H200", uuid="GPU-12ab", total=150_754_820_096, used=1 << 30, clock=1980, milliwatts=698_400, celsius=61
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
    expected = hardware.Reading(
        name="NVIDIA H200",
        uuid="GPU-12ab",
        total_bytes=150_754_820_096,
        used_bytes=1 << 30,
        clock_mhz=1980.0,
        power_w=698.4,
        temperature_c=61.0,
    )
    assert hardware.reading("GPU-12ab") == expected
    assert hardware.reading("12ab") == expected  # torch leaves the prefix out
    assert hardware.reading("GPU-other") is None
    assert fake.open == 0


def test_sensor_that_refuses_is_empty_and_the_rest_stays(nvml):
    nvml(VIRTUAL)
    assert hardware.reading("GPU-77cd") == hardware.Reading(name="GRID A100", uuid="GPU-77cd")


def test_no_driver_and_no_package(nvml, monkeypatch):
    nvml(H200, init_error="Driver Not Loaded")
    assert hardware.reading("GPU-12ab") is None and not hardware.gpu_visible()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises ImportError
    assert hardware.reading("GPU-12ab") is None and not hardware.gpu_visible()


def test_held_open_a_reading_need_not_open_it_again(nvml, monkeypatch):
    fake = nvml(H200)
    hardware.hold_nvml()
    hardware.reading("GPU-12ab")
    assert fake.open == 1
    nvml(init_error="Driver Not Loaded")
    hardware.hold_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    hardware.hold_nvml()


def test_gpu_visible(nvml, monkeypatch):
    nvml(H200)
    assert hardware.gpu_visible()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not hardware.gpu_visible()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert hardware.gpu_visible()
    nvml()
    assert not hardware.gpu_visible()
