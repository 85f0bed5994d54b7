"""When sampling stops, and that a cancel is heard between two calls. (How long things take is a benchmark's affair.)"""

from __future__ import annotations

import pytest
import torch

from attnlab.measure import timing
from attnlab.measure.timing import Cancelled, HostTimer, Stop


class Clock:
    """A clock that only moves when a call does."""

    def __init__(self, monkeypatch, durations_s):
        self.now, self.durations, self.calls = 0.0, iter(durations_s), 0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def call(self):
        self.now += next(self.durations)
        self.calls += 1


def nothing():
    return None


def test_stops_when_the_interval_is_narrow(monkeypatch):
    clock = Clock(monkeypatch, [0.001] * 100)
    result = HostTimer().sample(clock.call, Stop(budget_s=10, min_samples=10, target=0.01), nothing, 5)
    assert len(result.samples_ms) == 10 and result.wall_ms == pytest.approx(1.0)


def test_goes_on_while_the_interval_is_wide_and_time_is_left(monkeypatch):
    clock = Clock(monkeypatch, [0.001, 0.002] * 100)
    result = HostTimer().sample(clock.call, Stop(budget_s=0.05, min_samples=3, target=0.01), nothing, 5)
    assert 30 <= len(result.samples_ms) <= 40


def test_never_fewer_than_the_minimum_even_when_time_is_used_up(monkeypatch):
    clock = Clock(monkeypatch, [5.0] * 10)
    result = HostTimer().sample(clock.call, Stop(budget_s=0.1, min_samples=3, target=0.01), nothing, 5)
    assert len(result.samples_ms) == 3 and result.in_samples_s == pytest.approx(15)


def test_a_cancel_is_heard_between_two_calls(monkeypatch):
    clock = Clock(monkeypatch, [0.001] * 100)

    def check():
        if clock.calls == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        HostTimer().sample(clock.call, Stop(budget_s=10, min_samples=50, target=0.0), check, 5)
    assert clock.calls == 2


@pytest.mark.gpu
def test_events_agree_with_a_graph_of_many_calls():
    """A copy of 64 MiB, timed call by call with events, against 20 of them replayed as one CUDA graph."""
    device = torch.device("cuda:0")
    source = torch.randn(32 << 20, device=device, dtype=torch.bfloat16)
    target = torch.empty_like(source)
    measured = timing.CudaTimer(device).sample(
        lambda: target.copy_(source), Stop(budget_s=0.5, min_samples=20, target=0.01), nothing, 5
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            target.copy_(source)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    median = sorted(measured.samples_ms)[len(measured.samples_ms) // 2]
    assert median == pytest.approx(start.elapsed_time(end) / 20, rel=0.25)
    assert not measured.launch_bound and measured.notes == ()


@pytest.mark.gpu
def test_launch_cost_is_not_in_device_time():
    """A kernel that does next to nothing: a caller waits many times longer than the device works."""
    x = torch.zeros(1024, device="cuda:0")
    result = timing.CudaTimer(torch.device("cuda:0")).sample(
        lambda: x.add_(1), Stop(budget_s=0.2, min_samples=20, target=0.01), nothing, 5
    )
    assert result.launch_bound
    assert sorted(result.samples_ms)[len(result.samples_ms) // 2] < result.wall_ms / 2
