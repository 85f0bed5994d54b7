"""Several devices of one machine: named, found, and each with a worker that sees no other."""

import pytest

from attnlab import devices, nvml
from attnlab.devices import CPU, Choice

FIRST, SECOND = (Choice(f"NVIDIA H200 GPU-{i}", "CUDA_VISIBLE_DEVICES", f"GPU-{i}") for i in (0, 1))


@pytest.fixture
def two(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards = tuple(nvml.Reading(name="NVIDIA H200", uuid=f"GPU-{i}") for i in (0, 1))
    monkeypatch.setattr(nvml, "cards", lambda: cards)


def test_a_machine_without_a_gpu_has_its_cpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "cards", tuple)
    assert devices.here() == (CPU,) == devices.chosen("all", devices.here()) == devices.chosen("cpu", devices.here())


def test_gpus_are_those_that_a_program_may_use(two, monkeypatch):
    assert devices.here() == (FIRST, SECOND)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, GPU-9")
    assert [choice.value for choice in devices.here()] == ["1", "GPU-9"]
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert devices.here() == (CPU,)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("all", (FIRST, SECOND)),
        ("1", (SECOND,)),
        ("1,0", (SECOND, FIRST)),
        ("GPU-1, cpu", (SECOND, CPU)),
        ("0,GPU-0", (FIRST,)),
    ],
)
def test_a_device_is_named_by_number_by_uuid_or_as_the_cpu(two, text, found):
    assert devices.chosen(text, devices.here()) == found


@pytest.mark.parametrize("text", ["2", "-1", "cuda:0", "", "0,,1", "GPU-7"])
def test_what_is_not_there_is_refused_with_what_is(two, text):
    with pytest.raises(ValueError, match=r"legal: all, .*cpu, 0 \(NVIDIA H200 GPU-0\), 1 \(NVIDIA H200 GPU-1\)"):
        devices.chosen(text, devices.here())


def test_a_worker_sees_its_own_device_alone():
    assert devices.worker_command(SECOND, ["python"]) == ["env", "CUDA_VISIBLE_DEVICES=GPU-1", "python"]
    assert devices.worker_command(CPU, ["python"]) == ["env", "ATTNLAB_DEVICE=cpu", "python"]


def test_a_name_is_short_enough_for_a_choice_and_tells_two_cards_apart():
    long = Choice("NVIDIA H200 GPU-cdedaedf-3cce-0178-50b4-d88622c8e3d4", "CUDA_VISIBLE_DEVICES", "GPU-cdedaedf")
    assert long.short == "NVIDIA H200 GPU-cdedaedf" and CPU.short == "CPU"
