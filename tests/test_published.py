"""Published figures beside a run: in grey, with their source, and only where card, shape, dtype and direction are theirs."""

from dataclasses import replace

import pytest
from samples import H200

from attnlab import claims, figures
from attnlab.claims import CLAIMS
from attnlab.export import recorded_runs
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.sweep import TIME, Sweep

PAPERS = {claim.name: claim for claim in CLAIMS if claim.paper}
CARDS = {"A100": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3", "B200": "NVIDIA B200"}


def run_of(claim, card="", **problem):
    """A run of the claim's setting, with something else in it where asked."""
    sweep = claim.sweep("cuda")
    sweep = replace(sweep, problem=replace(sweep.problem, **problem), paths=("standard", "flash"))
    device = replace(H200, name=card or CARDS[claim.cards[0]])
    points = tuple(
        Measurement.of(sweep.at(seq), path, "ok", device_ms=ms * seq, peak_bytes=seq)
        for path, ms in (("standard", 3.0), ("flash", 1.0))
        for seq in sweep.seqs
    )
    return Run(id="r", sweep=sweep, state="done", created="2026-11-30", device=device, measurements=points)


def published(run):
    return [t for draw in (figures.efficiency, figures.speedup) for t in draw(run)["data"] if "published" in t["uid"]]


def test_the_figures_are_those_of_the_papers():
    assert {name: claim.published for name, claim in PAPERS.items()} == {
        "fa1-speed": (2, 4),
        "fa2-rate": (203,),
        "fa3-rate": (740,),
        "fa4-rate": (1613,),
    }
    assert all(claim.source and claim.setting and claim.cards for claim in PAPERS.values())


@pytest.mark.parametrize("name", PAPERS)
def test_a_figure_stands_beside_the_run_of_its_setting(name):
    claim = PAPERS[name]
    (trace,) = published(run_of(claim))
    assert set(trace["y"]) == set(claim.published) and set(trace["x"]) <= set(claim.seqs)
    assert claim.source in trace["hovertext"].replace("&#x27;", "'") and "var(--attn-quiet)" in str(trace)
    assert "legendgroup" not in trace, "no path's own"
    said = str([draw(run_of(claim)) for draw in (figures.efficiency, figures.speedup)])
    assert f"{claim.paper}, published: " in said


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize(
    "other",
    [
        {"card": "NVIDIA H200"},
        {"head_dim": 32},
        {"batch": 3},
        {"causal": True},
        {"dtype": "float32"},
        {"direction": "backward"},
        {"window": 128},
    ],
)
def test_it_does_not_where_anything_of_the_setting_is_another(name, other):
    assert published(run_of(PAPERS[name], **other)) == []


def test_it_does_not_at_other_lengths_or_with_other_queries():
    run = run_of(PAPERS["fa3-rate"])
    short = replace(run.sweep, seqs=(1024,), problem=run.sweep.problem.at_seq(1024))
    assert published(replace(run, sweep=short, measurements=())) == []
    assert not PAPERS["fa3-rate"].matches(replace(run, sweep=replace(run.sweep, seq_q=1)))
    assert not PAPERS["fa3-rate"].matches(replace(run, device=None))
    padded = replace(run.sweep, problem=replace(run.sweep.problem, lengths=(9000,)))
    assert not PAPERS["fa3-rate"].matches(replace(run, sweep=padded))


def test_what_is_only_said_is_no_published_figure():
    said = next(claim for claim in CLAIMS if claim.source == claims.SAID)
    sweep = Sweep(problem=AttentionProblem(batch=4, seq_q=512, heads=32, head_dim=128), seqs=(512,))
    assert not said.matches(Run(id="r", sweep=sweep, state="done", created="2026-11-30", device=H200))


def test_no_recorded_run_of_an_h200_carries_one():
    assert not any(published(run) for run in recorded_runs()[0].values() if run.sweep.task == TIME)


def test_the_axis_reaches_a_figure_above_every_measured_rate():
    run = run_of(PAPERS["fa4-rate"])
    assert figures.efficiency(run)["layout"]["yaxis"]["autorangeoptions"]["include"][1] > 1613
