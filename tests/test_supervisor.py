"""What the supervisor does in turn, without a worker. With one it is tried through the lab: test_lab.py, test_faults.py."""

import queue
from types import SimpleNamespace

from attnlab.supervisor import Job, Supervisor


def test_an_alarm_that_is_due_rings_among_lines_that_never_end():
    waiting = SimpleNamespace(_inbox=queue.Queue(), _alarm=(0.0, None), _before_alarm=None)
    for n in range(3):
        waiting._inbox.put(("line", None, n))
    taken = []
    while (said := Supervisor._next(waiting))[0] != "alarm":
        taken.append(said[2])
        waiting._inbox.put(("line", None, 99))
        assert len(taken) < 10, "it waits for silence"
    assert taken == [0, 1, 2]  # what was there before it was due may be the answer that it waits for


def test_a_pause_is_taken_off_the_time_that_has_passed(monkeypatch):
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr("attnlab.supervisor.time", SimpleNamespace(monotonic=lambda: now.s))
    job = Job("r1", planner=None, free_bytes=0)
    job.pause()  # before the first step there is nothing to stop
    now.s = 105.0
    assert job.elapsed_s() == 0.0
    job.begun, now.s = 105.0, 107.0
    job.pause()
    now.s = 117.0
    job.pause()  # still the same one
    job.resume()
    now.s = 118.0
    assert job.elapsed_s() == 3.0
