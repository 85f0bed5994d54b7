"""What stands on the stage under a headline: one sentence and one chart, for each kind of step."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as escape_html
from math import log10

import streamlit as st

from attnlab import (
    estimate,
    exactness_figure,
    figures,
    online_softmax,
    roofline_figure,
    softmax_figure,
    stage_figure,
    stage_words,
    tiling,
    trip,
    trip_figures,
    verdicts,
)
from attnlab.chart_style import Figure, frame
from attnlab.device import Device
from attnlab.problem import AttentionProblem
from attnlab.run import Run
from attnlab.talk import Step
from attnlab.ui import chart, headline, tiles
from attnlab.ui.text import escape

CHART_HEIGHT = "max(15rem, calc(100vh - 20.1rem))"  # what is above and below, in rem
DRAWN = {"latency": figures.latency, "memory": figures.memory, "speedup": figures.speedup}
BLOCKS = online_softmax.KEYS // online_softmax.BLOCK


def title(words: str) -> None:
    """The headline of a step, in one line of a hall's size; set smaller when it is long."""
    scale = min(1.0, 44 / len(words))
    style = f"font-size: calc({scale:.2f} * 2.9rem); line-height: 3.5rem; height: 3.5rem; font-weight: 750; margin: 0"
    style += "; white-space: nowrap; overflow: hidden"
    st.html(f'<p class="attnlab-headline" style="{style}">{escape_html(words)}</p>')


def sentence(words: str) -> None:
    """What is to be read out, under the headline; keys.js lets all that is in rem grow with the screen."""
    headline.spoken(words, size="1.95rem", characters=68)


def in_order(run: Run, first: Sequence[str]) -> list[str]:
    """The paths of a run as they are revealed: those of the step, then the others."""
    return [*(p for p in first if p in run.sweep.paths), *(p for p in run.sweep.paths if p not in first)]


def sweep(step: Step, run: Run, scale: str, revealed: Sequence[str]) -> None:
    sentence(stage_words.sentence(run, step.chart, revealed))
    figure = stage_figure.staged(DRAWN[step.chart](run), scale=scale, paths=revealed)
    _chart(figure, f"{step.chart.capitalize()} against sequence length")


def roofline(run: Run, revealed: Sequence[str]) -> None:
    problems = [run.sweep.at(seq) for seq in run.sweep.seqs]
    roofs = estimate.roofs(run.device, problems[-1].dtype)
    standings = [s for m in run.measurements if (s := estimate.standing(m, roofs))]
    said = estimate.sentence(standings, roofs[0] if roofs else None, problems[-1])
    sentence(verdicts.with_mark(said, run))
    figure = roofline_figure.roofline(roofs, standings, problems, run.mark)
    figure["layout"]["yaxis"]["tickvals"] = figure["layout"]["yaxis"]["tickvals"][1:]  # two axes begin in one corner
    _chart(stage_figure.staged(figure, paths=revealed, below=True), "Roofline: TFLOP/s reached against FLOP per byte")


def exactness(run: Run, revealed: Sequence[str]) -> None:
    sentence(verdicts.with_mark(verdicts.exactness([run]) or "Nothing is measured yet.", run))
    figure = exactness_figure.figure([run])
    figure["layout"]["yaxis"]["range"] = _closer(figure)
    figure = stage_figure.staged(figure, paths=revealed)
    for annotation in figure["layout"]["annotations"]:
        if annotation.get("yref") == "y":  # the unit roundoff, between the lines
            annotation |= {"x": 0.02, "xanchor": "left", "yanchor": "top"}
    _chart(figure, "Error against float64 by sequence length")


def _closer(figure: Figure) -> list[float]:
    """The range of the errors, log10: from the decade below them to twice the largest."""
    low, high = figure["layout"]["yaxis"]["range"]
    errors = [y for trace in figure["data"] if trace.get("yaxis", "y") == "y" for y in trace["y"] if y]
    return [low, min(high, log10(2 * max(errors)))] if errors else [low, high]


def moved(problem: AttentionProblem) -> None:
    sentence(trip.sentence(problem))
    figure = stage_figure.staged(trip_figures.moved(problem))
    figure["layout"]["yaxis"]["showgrid"] = False  # through the words behind a bar
    _chart(figure, "Bytes through device memory, standard against flash")


def walk(problem: AttentionProblem, device: Device | None) -> None:
    walked = tiling.Tiling(problem, 128, 128)
    own = tiling.shared_bytes(device)
    chip = f"shared memory on {device.name}" if own else "shared memory, on an H200"
    sentence(tiling.sentence(walked))
    told = tiles.walk(walked, own or tiling.shared_bytes(tiling.EXAMPLE), chip) | {"few": True}
    alt = "The score matrix as tiles: one is on chip, none is written to memory"
    tiles.player(told, key="stage_tiles", height=CHART_HEIGHT, alt=alt)


def softmax(shown: int) -> None:
    blocks = online_softmax.trace(online_softmax.SCORES, online_softmax.VALUES, online_softmax.BLOCK)
    truth = online_softmax.plain(online_softmax.SCORES, online_softmax.VALUES)
    _, words = online_softmax.compared(blocks[-1].answer, truth)
    said = f"The answer is that of plain softmax, {online_softmax.number(truth, 4)}: {words}."
    if shown < len(blocks):
        said = "A block is worked through before the next has come: its max so far, its sum so far."
    sentence(said)
    _chart(softmax_figure.figure(blocks, shown), "The weights of each block, and what the next block does to them")


def nothing(words: str) -> None:
    """In the place of a chart that is not there yet, or cannot be."""
    sentence(words)
    layout = frame("", "") | {"meta": {"made_for_px": stage_figure.MADE_FOR_PX}}
    _chart({"data": [], "layout": layout | {"xaxis": {"visible": False}, "yaxis": {"visible": False}}}, escape(words))


def _chart(figure: Figure, alt: str) -> None:
    chart.plotly_chart(figure, key="stage", height=CHART_HEIGHT, alt=alt)
