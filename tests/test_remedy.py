"""What to do about a failure, in words that fit it."""

import pytest

from attnlab.measurement import STATUSES
from attnlab.remedy import AGAIN, known, remedy, with_remedy


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("the worker died (signal 9, killed); restarted", "host memory"),
        ("CUDA fault, worker restarted: CUDA error: device-side assert triggered", "the other points are not touched"),
        ("CUDA error: an illegal memory access was encountered", "leave the path out"),
        ("CUDA error: no CUDA-capable device is detected", "nvidia-smi"),
        ("CUDA driver error: unknown error", "nvidia-smi"),
        ("the device cannot be used: device is 'cuda:9'; legal here: cpu", "name one of them in ATTNLAB_DEVICE"),
        ("exit code 1: ModuleNotFoundError: No module named 'torch'", "pip install -r requirements.txt"),
        ("flash: something that nobody has seen before", AGAIN),
    ],
)
def test_a_fault_is_told_what_helps(reason, words):
    assert words in remedy("fault", reason)


def test_every_accident_has_a_remedy_and_nothing_else_has():
    assert {status for status in STATUSES if remedy(status, "CUDA error")} == {"fault", "oom", "timeout"}
    assert known("something that nobody has seen before") == ""


def test_reason_and_remedy_are_one_line():
    assert with_remedy("it ran out of memory.", "take less") == "it ran out of memory. Take less"
    assert with_remedy("it is so", "") == "it is so"
