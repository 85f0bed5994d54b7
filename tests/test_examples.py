"""The examples in docstrings are true."""

import doctest

import pytest

from attnlab import hardware, nvml, planner


@pytest.mark.parametrize("module", [hardware, nvml, planner], ids=lambda module: module.__name__)
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
