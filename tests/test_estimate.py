"""Roofs, floors and shares against arithmetic on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import CPU, F25, H200

from attnlab import cost
from attnlab.estimate import (
    DATA_SHEET,
    MEASURED,
    Roof,
    data_sheet_roof,
    done_flops,
    estimate,
    intensity,
    model_sentence,
    moved_bytes,
    rate,
    roofs,
    sentence,
    standing,
)
from attnlab.measurement import Measurement
from attnlab.problem import FORWARD_BACKWARD, AttentionProblem

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)
SHEET = data_sheet_roof("NVIDIA H200", "bfloat16")
BENCHED = replace(H200, matmul_tflops=(("bfloat16", 779.0),), copy_tbs=4.1)


def measured(path, ms, problem=PROBLEM, **more):
    return Measurement.of(problem, path, "ok", device_ms=ms, **more)


@pytest.mark.parametrize(
    ("name", "peak", "bandwidth"),
    [("NVIDIA H200", 989.5, 4.8), ("H100 PCIe", 756, 2.0), ("H100 NVL", 835.5, 3.9), ("A100-SXM4-80GB", 312, 2.039)],
)
def test_the_roof_of_a_data_sheet(name, peak, bandwidth):
    roof = data_sheet_roof(name, "bfloat16")
    assert (roof.peak_tflops, roof.bandwidth_tbs, roof.source) == (peak, bandwidth, DATA_SHEET)


def test_the_ridge_of_an_h200_and_both_sides_of_it():
    assert round(SHEET.ridge) == 206
    assert SHEET.words == "NVIDIA H200, data sheet: 989.5 TFLOP/s dense, 4.8 TB/s, ridge at 206 FLOP/B"
    assert SHEET.tflops_at(100) == pytest.approx(480) and SHEET.tflops_at(1000) == 989.5


def test_nothing_is_made_up_for_what_is_unknown():
    assert data_sheet_roof("Some Future GPU", "bfloat16") is None and data_sheet_roof("T4", "bfloat16") is None
    assert roofs(None, "bfloat16") == roofs(CPU, "float32") == roofs(replace(H200, name="H2000"), "bfloat16") == ()
    unknown = replace(BENCHED, name="H2000")
    (roof,) = roofs(unknown, "bfloat16")
    assert (roof.source, roof.peak_tflops, roof.bandwidth_tbs) == (MEASURED, 779.0, 4.1)
    assert roofs(unknown, "float32") == ()


def test_a_known_card_has_both_and_the_data_sheet_comes_first():
    assert [roof.source for roof in roofs(BENCHED, "bfloat16")] == [DATA_SHEET, MEASURED]


def test_flash_moves_each_tensor_once_and_standard_every_step():
    tensors, scores = 4 * 4 * 4096 * 32 * 128 * 2, 4 * 32 * 4096 * 4096 * 2
    assert moved_bytes(PROBLEM, "flash") == tensors
    assert moved_bytes(PROBLEM, "standard") == 6 * scores + 10 * tensors // 4
    assert moved_bytes(PROBLEM, "compiled") == moved_bytes(PROBLEM, "sdpa-math") == moved_bytes(PROBLEM, "standard")
    assert intensity(PROBLEM, "flash") == 4096 / 2  # 4 s² d over 4 s d 2 bytes


def test_a_path_that_keeps_the_scores_computes_one_product_less():
    both = replace(PROBLEM, direction=FORWARD_BACKWARD)
    assert done_flops(both, "flash") == cost.flops(both)
    assert done_flops(both, "standard") * 7 == cost.flops(both) * 6


def test_floors_on_paper():
    flash, standard = (estimate(PROBLEM, path, SHEET) for path in ("flash", "standard"))
    assert flash.ms == flash.compute_ms == pytest.approx(4 * 4 * 32 * 4096**2 * 128 / 989.5e12 * 1e3)
    assert (flash.bound, standard.bound) == ("compute", "memory")
    assert standard.ms == pytest.approx(moved_bytes(PROBLEM, "standard") / 4.8e12 * 1e3)


def test_a_point_says_its_share_of_the_floor_and_how_far_the_model_is_off():
    s = standing(measured("flash", 1.492), roofs(BENCHED, "bfloat16"))
    assert s.share == pytest.approx(1.1112 / 1.492, abs=1e-3) and s.tflops == pytest.approx(737, abs=1)
    assert s.predicted.ms == pytest.approx(s.floor.ms * 989.5 / 779)
    assert s.deviation == pytest.approx(s.predicted.ms / 1.492 - 1) and not s.off and not s.impossible
    assert standing(measured("standard", 11.9), (SHEET,)).off
    assert standing(F25.measurements[1], (SHEET,)) is None and standing(measured("flash", 1.0), ()) is None


def test_a_point_above_the_roof_is_flagged_and_not_cut():
    s = standing(measured("flash", 0.5), (SHEET,))
    assert s.impossible and s.share == pytest.approx(2.22, abs=0.01)
    assert "1 above the roof" in model_sentence([s])
    assert sentence([s, standing(measured("standard", 11.9), (SHEET,))], SHEET, PROBLEM) == (
        "At sequence 4,096 flash is faster than the roof of NVIDIA H200 allows (222 %): impossible, unless its data came out"
        " of a cache."
    )


def test_in_words():
    standings = [standing(measured(path, ms), (SHEET,)) for path, ms in (("standard", 11.9), ("flash", 1.492))]
    assert sentence(standings, SHEET, PROBLEM) == (
        "At sequence 4,096 flash computes 737 TFLOP/s, 74 % of NVIDIA H200's dense peak; standard moves 50× the bytes,"
        " and memory holds it at 92.4 TFLOP/s."
    )
    assert "cannot take less than 5.65 ms, memory-bound, flash 1.11 ms, compute-bound: 5.1×" in sentence(
        [], SHEET, PROBLEM
    )
    assert sentence([], None, PROBLEM).startswith("No roof is known")
    assert (rate(637.4), rate(0.0172)) == ("637 TFLOP/s", "17.2 GFLOP/s")
    assert model_sentence([]) == "Nothing is measured yet."
    assert "off by more than 25 % at 2 of 2 points, most for standard at 4,096" in model_sentence(standings)
    good = standing(measured("flash", 1.2), (SHEET,))
    assert model_sentence([good]) == "The model is within 25 % of all 1 measured times."


def test_two_numbers_make_a_roof():
    roof = Roof(peak_tflops=100, bandwidth_tbs=1, device="Two numbers", source="given")
    assert roof.ridge == 100 and roof.provenance == "given by hand" and "100 TFLOP/s" in roof.words
