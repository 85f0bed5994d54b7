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
