"""Measurement, Device, Run: what they hold, and JSON both ways."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from attnlab import cost
from attnlab.device import Device, PathStatus
from attnlab.measurement import STATUSES, Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import Sweep

PROBLEM = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)


def point(**changes):
    return Measurement(**{"problem": PROBLEM, "path": "flash", "status": "ok", **changes})


@pytest.mark.parametrize("status", STATUSES)
def test_json_round_trip_of_every_status(status):
    before = point(status=status, reason="why", device_ms=1.5, notes=("a", "b"), samples=3, launch_bound=True)
    assert Measurement.from_json(json.loads(json.dumps(before.to_json(), allow_nan=False))) == before


def test_raw_samples_come_back_as_a_list_on_the_way():
    data = point(samples_ms=(1.0, 2.0)).to_json()
    assert data["samples_ms"] == [1.0, 2.0]
    assert Measurement.from_json(data).samples_ms == (1.0, 2.0)


def test_only_an_out_of_memory_with_a_prediction_was_foreseen():
    assert point(status="oom", predicted_bytes=1 << 40).foreseen
    assert not point(status="oom").foreseen and not point(status="skipped", predicted_ms=1.0).foreseen


def test_an_interval_has_two_ends_above_0():
    assert point(device_ms_low=1.0, device_ms_high=2.0).interval_ms == (1.0, 2.0)
    assert point(device_ms_low=1.0).interval_ms is None
    assert point(device_ms_low=0.0, device_ms_high=1.0).interval_ms is None


def test_one_sample_has_no_interval():
    assert point(device_ms_low=1.0, device_ms_high=1.0, samples=1).interval_ms is None
    assert point(device_ms_low=1.0, device_ms_high=1.0, samples=2).interval_ms == (1.0, 1.0)


def test_the_exact_counts_are_filled_in():
    m = Measurement.of(PROBLEM, "flash", "fault", reason="why")
    assert (m.flops, m.min_bytes, m.reason) == (cost.flops(PROBLEM), cost.min_bytes(PROBLEM), "why")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match="finite numbers or null"):
        point(device_ms=value)


def test_an_unknown_status_names_the_legal_ones():
    with pytest.raises(ValueError, match="legal: ok, oom"):
        point(status="fine")


def test_rate():
    assert point(flops=1_099_511_627_776, device_ms=1.7).tflops == pytest.approx(646.8, abs=0.1)
    assert point(flops=1).tflops is None


def device(**changes):
    return Device(**{"kind": "cuda", "name": "NVIDIA H200", "uuid": "u", "total_bytes": 1, "free_bytes": 1, **changes})


def test_device_round_trip_and_key():
    one = device(packages=(("flash-attn", "2.8.3"),), torch="2.11")
    assert Device.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert device(torch="2.11").key != device(torch="2.12").key
    assert device(packages=(("flash-attn", "2.8.3"),)).key != device().key
    assert device(free_bytes=5).key == device().key


def test_path_status_round_trip():
    status = PathStatus(name="flash", state="missing", reason="not here")
    assert PathStatus.from_json(status.to_json()) == status and not status.usable
    with pytest.raises(ValueError, match="legal: ready, untested, missing, broken"):
        PathStatus.from_json({**status.to_json(), "state": "fine"})


def test_only_a_recorded_run_carries_the_mark():
    sweep = Sweep(problem=PROBLEM, seqs=(128,))
    run = Run(id="1", sweep=sweep, state="done", created="2026-11-30T10:00:00+00:00", device=device(), recorded=True)
    assert run.mark == "recorded on NVIDIA H200, 2026-11-30"
    assert replace(run, device=None).mark == "recorded on unknown device, 2026-11-30"
    assert replace(run, recorded=False).mark == ""
