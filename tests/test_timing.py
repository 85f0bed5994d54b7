"""When sampling stops, and that a cancel is heard between two calls. (How long things take is a benchmark's affair.)"""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from attnlab import nvml
from attnlab.measure import timing
from attnlab.measure.series import DRIFTED, HURRIED, LATE, MOVED, SPARE_SAMPLES, Series, Stop
from attnlab.measure.timing import Batch, Cancelled, HostTimer
from attnlab.roofline import Floor, Pace


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


def sample(clock, stop, check=nothing, series=None, limits=()):
    series = series or Series()
    HostTimer().sample(series, clock.call, stop, check, "", limits)
    return series


def test_stops_when_the_interval_is_narrow(monkeypatch):
    clock = Clock(monkeypatch, [0.001] * 100)
    series = sample(clock, Stop(budget_s=10, min_samples=10, target=0.01))
    assert len(series.samples_ms) == 10 and series.samples_ms[0] == pytest.approx(1.0)


def test_goes_on_while_the_interval_is_wide_and_time_is_left(monkeypatch):
    clock = Clock(monkeypatch, [0.001, 0.002] * 100)
    series = sample(clock, Stop(budget_s=0.05, min_samples=3, target=0.01))
    assert 30 <= len(series.samples_ms) <= 40


def test_never_fewer_than_the_minimum_even_when_time_is_used_up(monkeypatch):
    clock = Clock(monkeypatch, [5.0] * 10)
    series = sample(clock, Stop(budget_s=0.1, min_samples=3, target=0.01))
    assert len(series.samples_ms) == 3 and series.used_s == pytest.approx(15)


def test_a_later_visit_adds_what_is_missing(monkeypatch):
    clock = Clock(monkeypatch, [0.001] * 100)
    series = sample(clock, Stop(budget_s=10, min_samples=3, target=0.05))
    sample(clock, Stop(budget_s=10, min_samples=10, target=0.01), series=series)
    assert len(series.samples_ms) == clock.calls == 10


def test_samples_that_are_lost_meanwhile_are_not_made_up_for_beyond_the_time(monkeypatch):
    """Three are there, seven are planned; the clock moves and the three no longer count."""
    series = Series(samples_ms=[1.0] * 3)

    def moved():
        if not series.unused:
            series.drop(MOVED)

    clock = Clock(monkeypatch, [5.0] * 30)
    sample(clock, Stop(budget_s=0, min_samples=10, target=0.01), moved, series)
    assert clock.calls == 7 and len(series.counting()) == 7


def test_a_cancel_is_heard_between_two_calls(monkeypatch):
    clock = Clock(monkeypatch, [0.001] * 100)

    def check():
        if clock.calls == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        sample(clock, Stop(budget_s=10, min_samples=50, target=0.0), check)
    assert clock.calls == 2


def test_a_compilation_inside_the_clock_counts_for_nothing(monkeypatch):
    clock = Clock(monkeypatch, [0.001, 0.001, 0.9] + [0.001] * 100)
    series = sample(clock, Stop(budget_s=10, min_samples=10, target=0.01))
    assert len(series.samples_ms) == 11 and len(series.counting()) == 10 and max(series.counting()) < 1.1


def test_impossible_samples_are_replaced_a_bounded_number_of_times(monkeypatch):
    limit = Floor(0.5, 1.0, "TFLOP", "a peak")
    clock = Clock(monkeypatch, [0.0001, 0.0001] + [0.001] * 100)
    assert len(sample(clock, Stop(10, 5, 0.01), limits=[limit]).samples_ms) == 7
    clock = Clock(monkeypatch, [0.0001] * 1000)
    assert len(sample(clock, Stop(10, 5, 0.01), limits=[limit]).samples_ms) == 5 + SPARE_SAMPLES
    clock = Clock(monkeypatch, [0.1] * 1000)  # and no longer than the time for the point
    assert len(sample(clock, Stop(0.05, 5, 0.01), limits=[Floor(500, 1.0, "TFLOP", "a peak")]).samples_ms) == 5


def test_dropped_samples_stay_and_count_for_nothing():
    series = Series(samples_ms=[1.0, 2.0, 3.0], unused={1: LATE}, readings=[object()])
    series.drop(MOVED)
    series.samples_ms.append(4.0)
    assert series.unused == {0: MOVED, 1: LATE, 2: MOVED} and series.counting() == [4.0] and series.readings == []


def test_late_samples_are_better_than_few():
    series = Series(samples_ms=[1.0, 2.0, 1.5], unused={0: LATE, 1: LATE})
    series.count_late()
    assert series.counting() == [1.0, 2.0, 1.5] and series.unfilled
    mostly_in_time = Series(samples_ms=[1.0, 2.0, 1.5], unused={0: LATE})
    mostly_in_time.count_late()
    assert mostly_in_time.counting() == [2.0, 1.5] and not mostly_in_time.unfilled


def test_samples_on_the_way_to_a_level_do_not_count():
    """A card that begins to work: its clock falls under the load, and the times rise until they stay."""
    series = Series(samples_ms=[5.8, 5.8, 5.9, 6.0, 6.2, 6.5] + [6.6] * 6)
    series.leave_drift(())
    assert series.counting() == [6.2, 6.5] + [6.6] * 6 and set(series.unused.values()) == {DRIFTED}
    for steady in (
        [6.6, 6.5, 6.7, 6.6, 6.5, 6.6, 6.7, 6.5, 6.6],
        [5.8, 5.8, 6.6, 6.6],
        [6.60, 6.60, 6.60, 6.61, 6.61, 6.61] * 2,
    ):
        series = Series(samples_ms=list(steady))
        series.leave_drift(())
        assert series.unused == {}


# On a GPU


def sampled(call, l2="cold", **stop):
    timer, series = timing.CudaTimer(torch.device("cuda:0")), Series()
    timer.timed_call(call)  # as the engine does: a kernel is loaded by its first call
    timer.sample(series, call, Stop(**{"budget_s": 0.5, "min_samples": 20, "target": 0.01, **stop}), nothing, l2, ())
    return timer, series


class Card(timing.CudaTimer):
    """A timer whose card is a list: each call takes 5 ms."""

    def __init__(self):
        self.did: list = []

    def _batch(self, call, count, sleep_ms, l2):
        self.did.append(count)
        return Batch([5.0] * count, [0.01] * count, [0.05] * count, [True] * count)

    def rest(self, series):
        self.did.append("rest" if series.pace else "no rest")


def test_a_paced_series_rests_before_each_of_its_bursts():
    card, series = Card(), Series(pace=Pace(calls=2, rest_s=0.01))
    card._sample(series, nothing, Stop(10.0, 5, 0.01), nothing, "cold", (), time.perf_counter(), nvml.Conditions())
    assert card.did == ["rest", 2] * 3 and len(series.counting()) == 6


class BusyHost(timing.CudaTimer):
    """A timer whose host queues nothing ahead behind a sleep shorter than `needs_ms`: the launch is in what it times."""

    def __init__(self, needs_ms: float):
        self.needs_ms, self.sleeps_ms = needs_ms, []

    def _batch(self, call, count, sleep_ms, l2):
        self.sleeps_ms.append(sleep_ms)
        ahead = [sleep_ms >= self.needs_ms or i < count // 3 for i in range(count)]
        return Batch([0.003 if queued else 0.2 for queued in ahead], [0.01] * count, [0.05] * count, ahead)


@pytest.mark.parametrize(("needs_ms", "found_ms", "sleeps"), [(0, 0.003, 1), (10, 0.003, 3), (1000, 0.0, 6)])
def test_what_events_span_is_found_from_samples_queued_ahead_alone(needs_ms, found_ms, sleeps):
    timer = BusyHost(needs_ms)
    assert timer._queued_ahead_ms(nothing, "cold") == found_ms
    assert len(timer.sleeps_ms) == sleeps and max(timer.sleeps_ms) <= timing.LONGEST_SLEEP_MS


def test_what_events_span_lies_between_batches_that_differ_by_turns():
    class Turns(BusyHost):
        def _batch(self, call, count, sleep_ms, l2):
            self.sleeps_ms.append(sleep_ms)
            times_ms = [0.003 + 0.0004 * (len(self.sleeps_ms) % 2)] * count
            return Batch(times_ms, [0.01] * count, [0.05] * count, [True] * count)

    assert Turns(0)._spans_ms(nothing, "cold") == pytest.approx(0.0032)


def test_behind_a_sleep_there_is_room_for_all_that_is_queued_with_a_call():
    """A flush and two events took a slow host longer than the call: half of what came after the first batch was late."""

    class SlowHost(Card):
        def _batch(self, call, count, sleep_ms, l2):
            self.did.append(count)
            in_time = [(i + 1) * 0.05 < sleep_ms for i in range(count)]
            return Batch([0.001] * count, [0.015] * count, [0.05] * count, in_time)

    host, series = SlowHost(), Series()
    host._sample(
        series, nothing, Stop(10.0, 5, 0.01, wanted=60), nothing, "cold", (), time.perf_counter(), nvml.Conditions()
    )
    assert len(host.did) > 2 and not series.unused


def test_a_series_without_a_pace_is_queued_at_once():
    card, series = Card(), Series()
    card._sample(series, nothing, Stop(10.0, 5, 0.01), nothing, "cold", (), time.perf_counter(), nvml.Conditions())
    assert card.did == [5]


@pytest.mark.gpu
def test_events_agree_with_a_graph_of_many_calls():
    """A copy of 64 MiB, timed call by call with events, against 20 of them replayed as one CUDA graph."""
    source = torch.randn(32 << 20, device="cuda:0", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    _, series = sampled(lambda: target.copy_(source))
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
    median = statistics.median(series.counting())
    assert median == pytest.approx(start.elapsed_time(end) / 20, rel=0.25)
    assert series.host_ms < median and not series.unfilled


@pytest.mark.gpu
def test_a_host_that_was_busy_when_the_worker_started_makes_no_sample_shorter(monkeypatch):
    """25 browsers that opened the page at once did: 11 µs were taken off each sample."""
    calm, spin = timing.CudaTimer(torch.device("cuda:0")), torch.cuda._sleep

    def launched_late(cycles):
        if cycles == 0:
            time.sleep(2e-4)
        spin(cycles)

    monkeypatch.setattr(torch.cuda, "_sleep", launched_late)
    busy = timing.CudaTimer(torch.device("cuda:0"))
    for l2 in calm.l2_modes:
        assert 0 <= busy.beside_ms[l2] == pytest.approx(calm.beside_ms[l2], abs=1e-3)


@pytest.mark.gpu
def test_launch_cost_is_not_in_device_time():
    """A kernel that does next to nothing: a caller waits many times longer than the device works."""
    x = torch.zeros(1024, device="cuda:0")
    timer, series = sampled(lambda: x.add_(1))
    waits_ms = statistics.median(timer.timed_call(lambda: x.add_(1))[1] * 1e3 for _ in range(20))
    assert series.host_ms > statistics.median(series.counting()) and not series.unfilled
    assert statistics.median(series.counting()) < waits_ms / 2


@pytest.mark.gpu
def test_a_hot_cache_is_faster_than_a_cold_one_where_the_data_fit():
    """What the flush is for: a kernel that reads a quarter of L2."""
    x = torch.randn(torch.cuda.get_device_properties(0).L2_cache_size // 16, device="cuda:0")
    timer, cold = sampled(lambda: x.sum(), "cold")
    _, hot = sampled(lambda: x.sum(), "hot")
    assert statistics.median(hot.counting()) < 0.8 * statistics.median(cold.counting())
    assert "hot L2" in timer.clock("hot") and "cold L2" in timer.clock("cold")


@pytest.mark.gpu
def test_a_captured_call_replays_without_launch_cost():
    x = torch.zeros(1024, device="cuda:0")

    def many():
        for _ in range(20):
            x.add_(1)

    timer, series = sampled(many)
    timer.graph(series, many, 7, nothing, "cold")
    assert len(series.graphs_ms) == 7 and series.no_graph == ""
    assert statistics.median(series.graphs_ms) < series.host_ms


@pytest.mark.gpu
def test_a_call_that_cannot_be_captured_says_why_and_can_go_on():
    x = torch.zeros(1024, device="cuda:0")
    timer, series = sampled(lambda: x.sum().item())
    timer.graph(series, lambda: x.sum().item(), 7, nothing, "cold")
    assert series.graphs_ms == [] and series.no_graph.startswith("no CUDA graph: ")
    assert series.unfilled  # such a call waits for the device itself: no queue can be filled
    assert torch.rand(8, device="cuda:0").sum().item() > 0  # and PyTorch's random numbers go on


@pytest.mark.gpu
def test_after_a_capture_that_failed_what_is_in_store_is_still_given_back():
    """Else the card's memory would seem to be full: the allocator keeps all it has while it believes in a capture."""
    x = torch.zeros(1024, device="cuda:0")
    timer, series = sampled(lambda: x.sum().item())
    timer.graph(series, lambda: x.sum().item(), 7, nothing, "cold")
    assert series.graphs_ms == []
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    held = torch.empty(free // 2, dtype=torch.int8, device="cuda:0")
    del held  # in store now
    assert torch.empty(free * 3 // 4, dtype=torch.int8, device="cuda:0").numel()
    torch.cuda.empty_cache()


@pytest.mark.gpu
def test_the_card_is_watched_while_the_samples_run():
    x = torch.randn(4096, 4096, device="cuda:0")
    _, series = sampled(lambda: x @ x, budget_s=0.2, target=0.0)
    seen = series.conditions
    assert len(series.readings) >= 3 and seen.clock_mhz_low <= seen.clock_mhz <= seen.clock_mhz_high
    assert seen.power_w > 0 and seen.temperature_c > 0


@pytest.mark.gpu
def test_hard_work_rests_and_what_was_measured_without_a_rest_does_not_count():
    x = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
    pace, timer, series = Pace(calls=1, rest_s=0.02), timing.CudaTimer(torch.device("cuda:0")), Series()
    timer.timed_call(lambda: x @ x)  # the first call makes a handle
    timer.sample(series, lambda: x @ x, Stop(1.0, 5, 1.0), nothing, "cold", (), lambda ms: pace if ms > 0.5 else None)
    assert series.pace == pace and len(series.counting()) >= 5
    assert HURRIED in series.unused.values() and set(series.unused.values()) <= {LATE, HURRIED}
    before, started = len(series.samples_ms), time.perf_counter()
    timer.sample(series, lambda: x @ x, Stop(1.0, 10, 1.0), nothing, "cold", (), lambda ms: pace)
    timer.graph(series, lambda: x @ x, 3, nothing, "cold")
    rests = len(series.samples_ms) - before + len(series.graphs_ms)
    assert time.perf_counter() - started >= rests * pace.rest_s  # at least: they are never cut short
    assert len(series.counting()) >= 10 and series.graphs_ms


@pytest.mark.gpu
def test_a_long_call_is_one_sample_on_both_clocks():
    x = torch.randn(16_384, 16_384, device="cuda:0")
    timer, series = sampled(lambda: x @ x, budget_s=0.0, min_samples=3)
    median = statistics.median(series.counting())
    timer.long_call(series, lambda: x @ x, "cold")
    assert len(series.samples_ms) == 4 and len(series.walls_ms) == 1
    assert series.samples_ms[-1] == pytest.approx(median, rel=0.2) and series.walls_ms[0] >= series.samples_ms[-1]
