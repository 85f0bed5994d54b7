"""What a look at the answers found travels as strict JSON, and nothing else passes for it."""

import json
import math

import pytest

from attnlab.finding import VERDICTS, Finding, finite
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem

FOUND = Finding(what="dQ", verdict="fail", text="is far off", mode="default", values={"max_abs": 0.5, "relative": None})


def test_a_finding_and_a_measurement_that_holds_it_round_trip():
    problem = AttentionProblem(batch=1, seq_q=128, heads=2, head_dim=64)
    point = Measurement.of(problem, "flash", "suspect", findings=(FOUND, Finding(what="O", verdict="pass")))
    text = json.dumps(point.to_json(), allow_nan=False)
    assert Measurement.from_json(json.loads(text)) == point


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "0.5", [1]])
def test_values_are_finite_numbers_or_null(value):
    with pytest.raises(ValueError, match="finite numbers or null"):
        Finding(what="O", verdict="pass", values={"max_abs": value})
    assert finite(math.nan) is None and finite(math.inf) is None and finite(0.5) == 0.5


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"what": "O"}, {"what": "O", "verdict": "green"}, {"what": 1, "verdict": "pass"},
     {"what": "O", "verdict": "pass", "values": []}, {"what": "O", "verdict": "pass", "secret": 1},
     {"what": "O", "verdict": "pass", "text": None}],
)  # fmt: skip
def test_anything_else_is_refused(data):
    with pytest.raises(ValueError):
        Finding.from_json(data)


def test_a_refused_verdict_names_the_legal_ones():
    with pytest.raises(ValueError, match=", ".join(VERDICTS)):
        Finding(what="O", verdict="green")
