"""One point from close by: its samples, its three clocks, what ran, and what the device did meanwhile.

A click on a point of any chart picks it; so do the two choices at the top of the panel. The panel is always there and
always as high, so that nothing moves when another point is picked.
"""

from __future__ import annotations

from html import escape as escape_html

import streamlit as st

from attnlab import units
from attnlab.chart_style import AXIS, Figure, annotate, color, frame
from attnlab.measurement import STATUS_WORDS, Measurement
from attnlab.run import Run
from attnlab.summary import challenger
from attnlab.ui import chart
from attnlab.ui.text import escape

PANEL_PX = 640
SAMPLES_PX = 210
PICKED = "_picked_point"  # (path, sequence length), once the visitor has picked one
CHOICES = "_point_choices"  # (number of their widgets, what there is to choose from, what they show)
LISTENER = "point_samples"  # the chart that hears of clicks on all the others
UNKNOWN = "–"


def panel(run: Run) -> None:
    """Draws the panel for the point that is picked, in a fragment of its own: a click runs that fragment and no other."""
    if clicked := chart.new_click(LISTENER):
        pick(run, *clicked)
    with st.container(height=PANEL_PX, key="one_point"):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False):
            st.markdown("**One point**", width="content", wrap=False)
            path, seq = choices(run, picked(run))
        m = run.get(path, seq)
        name = f"{path} at {units.sequence(seq)}"
        left, right = st.columns(2, gap="small")
        height = f"{SAMPLES_PX}px"
        with left:
            alt = f"Histogram of the samples of {name}"
            chart.plotly_chart(histogram(m, path), key=LISTENER, height=height, alt=alt, listens=True)
        with right:
            alt = f"The samples of {name} in time order"
            chart.plotly_chart(in_order(m, path), key="point_order", height=height, alt=alt)
        st.html(facts_html(facts(m)))
        st.markdown("  \n".join(f":small[{escape(remark)}]" for remark in remarks(run, m, name)))


def picked(run: Run) -> tuple[str, int]:
    """The point that was picked, if this run has it; else the longest one measured of the path that the story is about."""
    path, seq = st.session_state.get(PICKED, ("", 0))
    if path in run.sweep.paths and seq in run.sweep.seqs:
        return path, seq
    path = challenger(run) or run.sweep.paths[0]
    return path, max((m.seq for m in run.measurements if m.path == path and m.ok), default=run.sweep.seqs[-1])


def pick(run: Run, path: str, seq: int) -> None:
    """Picks a point of the run. What a browser says may be of a run that is no longer shown."""
    if path in run.sweep.paths and seq in run.sweep.seqs:
        st.session_state[PICKED] = (path, seq)


def choices(run: Run, point: tuple[str, int]) -> tuple[str, int]:
    """The point as two choices, for the keyboard and for points that lie on one another; what they say.

    A point picked elsewhere gets new widgets, and what they say is read, not called back: a browser that was asked to run
    something else meanwhile still sends what the old ones showed, which would undo the click.
    """
    state = st.session_state
    about = (run.sweep.paths, run.sweep.seqs)
    generation, *shown = state.get(CHOICES, (0,))
    if shown != [about, point]:
        generation += 1
    said = tuple(
        st.selectbox(
            label,
            options,
            options.index(value),
            key=f"{key} {generation}",
            format_func=lambda option: option if isinstance(option, str) else f"at {units.sequence(option)}",
            label_visibility="collapsed",
            width=170,
        )
        for label, key, options, value in zip(
            ("Path", "Sequence"), ("point_path", "point_seq"), about, point, strict=True
        )
    )
    if said != point:
        pick(run, *said)
    state[CHOICES] = (generation, about, said)
    return said


# The samples


def histogram(m: Measurement | None, path: str) -> Figure:
    """How often each time occurred, in ms; the median as a line, its 95 % interval as a band."""
    layout = sample_frame(m, "Samples", "ms; median, 95 % interval")
    layout |= {"barmode": "stack", "bargap": 0.06, "yaxis": AXIS | {"nticks": 4, "rangemode": "tozero"}}
    layout["xaxis"] = AXIS | {"nticks": 5, "showgrid": False}
    used, left_out = split(m)
    data = [
        bars(used, path, "used", "used", {"color": color(path), "line": {"width": 0}}),
        bars(
            left_out, path, "unused", LEFT_OUT, {"color": "rgba(0,0,0,0)", "line": {"width": 2, "color": color(path)}}
        ),
    ]
    mark_median(layout, m, path, "x")
    return {"data": data, "layout": layout}


def in_order(m: Measurement | None, path: str) -> Figure:
    """Each sample in ms, in the order in which they were taken; hollow: left out of the median."""
    used, left_out = split(m)
    hollow = f" · ○ {len(left_out)} {LEFT_OUT}" if left_out else ""
    layout = sample_frame(m, "In time order", f"ms{hollow}")
    few = {"dtick": 1} if len(used) + len(left_out) <= 5 else {}  # or there are ticks between whole numbers
    places = AXIS | {"nticks": 5, "showgrid": False, "tickformat": "d"} | few
    layout |= {"xaxis": places, "yaxis": AXIS | {"nticks": 5}}
    dots = {"size": 7, "color": color(path)}
    rings = {"size": 9, "color": "var(--attn-page)", "line": {"width": 2, "color": color(path)}}
    data = [dotted(used, "used", "", dots), dotted(left_out, "unused", f"<br>{LEFT_OUT} of the median", rings)]
    mark_median(layout, m, path, "y")
    return {"data": data, "layout": layout}


LEFT_OUT = "left out"


def split(m: Measurement | None) -> tuple[dict[int, float], dict[int, float]]:
    """The samples in ms by their place, counted from 1: those in the median, and those left out of it."""
    samples = dict(enumerate(m.samples_ms, 1)) if m else {}
    left_out = {place: value for place, value in samples.items() if place - 1 in m.unused}
    return {place: value for place, value in samples.items() if place not in left_out}, left_out


def bars(samples: dict[int, float], path: str, uid: str, name: str, marker: dict) -> dict:
    hover = f"%{{y}} {name}, %{{x}} ms<extra></extra>"
    return {
        "type": "histogram",
        "uid": uid,
        "x": list(samples.values()),  # not [None], of which Plotly takes the width of a bin, NaN
        "bingroup": "one",
        "nbinsx": 24,
        "marker": marker,
        "hovertemplate": hover,
        "showlegend": False,
    }


def dotted(samples: dict[int, float], uid: str, said: str, marker: dict) -> dict:
    return {
        "type": "scatter",
        "uid": uid,
        "x": list(samples) or [None],
        "y": list(samples.values()) or [None],
        "mode": "markers",
        "marker": marker,
        "hovertext": [f"sample {place}: {units.ms(value)}{said}" for place, value in samples.items()] or [""],
        "hoverinfo": "text",
        "showlegend": False,
    }


def sample_frame(m: Measurement | None, title: str, subtitle: str) -> dict:
    layout = frame(title, subtitle)
    layout["title"]["font"]["size"] = 19
    layout["uirevision"] = f"{m.path} {m.seq}" if m else ""
    if m is None or not m.samples_ms:
        annotate(layout, "no samples")
        layout |= {"xaxis": AXIS, "yaxis": AXIS}
    return layout


def mark_median(layout: dict, m: Measurement | None, path: str, axis: str) -> None:
    """The median as a line across the chart, at its place on `axis`, and its interval as a band."""
    if m is None or not m.device_ms or not m.samples_ms:
        return
    other = "y" if axis == "x" else "x"
    across = {f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
    line = {"color": "var(--attn-text)", "width": 1.5}
    low, high = m.interval_ms or (m.device_ms, m.device_ms)
    layout["shapes"] += [
        {"type": "rect", **across, f"{axis}0": low, f"{axis}1": high, "fillcolor": color(path), "opacity": 0.25,
         "line": {"width": 0}, "layer": "below"},
        {"type": "line", **across, f"{axis}0": m.device_ms, f"{axis}1": m.device_ms, "line": line},
    ]  # fmt: skip


# What is known of it


def facts(m: Measurement | None) -> list[tuple[str, str]]:
    """(what, value) of everything measured beside the samples, always the same ones; a dash where it is not known."""
    if m is None:
        return []
    low, high = m.interval_ms or (None, None)
    half = f"±{50 * (high - low) / m.device_ms:.1f} %" if low and m.device_ms else UNKNOWN
    left_out = f" + {len(m.unused)} {LEFT_OUT}" if m.unused else ""
    watched = m.clock_mhz_low is not None or m.throttle
    return [
        ("Status", STATUS_WORDS[m.status]),
        ("Median", units.ms(m.device_ms)),
        ("95 % interval", f"{units.ms(low)} to {units.ms(high)}" if low else UNKNOWN),
        ("Its half width", half),
        ("Samples", f"{m.samples:,}{left_out}"),
        ("CUDA graph", units.ms(m.graph_ms)),
        ("Wall", units.ms(m.wall_ms)),
        ("Host, to launch", units.ms(m.host_ms)),
        ("First call", with_unit(m.first_call_s, "{:.3g} s")),
        ("L2 cache", m.l2 or UNKNOWN),
        ("Clock", f"{with_unit(m.clock_mhz, '{:,.0f} MHz')}{clock_range(m)}"),
        ("Lowered by", ", ".join(m.throttle) or ("nothing" if watched else UNKNOWN)),
        ("Power", with_unit(m.power_w, "{:.0f} W")),
        ("Temperature", with_unit(m.temperature_c, "{:.0f} °C")),
        ("Memory added", units.size(m.peak_bytes)),
        ("Error to float64", with_unit(m.error, "{:.1e}")),
        ("That of standard", with_unit(m.standard_error, "{:.1e}")),
    ]


def with_unit(value: float | None, pattern: str) -> str:
    return UNKNOWN if value is None else pattern.format(value)


def clock_range(m: Measurement) -> str:
    if m.clock_mhz_low is None or m.clock_mhz_high is None:
        return ""
    return f" ({m.clock_mhz_low:,.0f} to {m.clock_mhz_high:,.0f})"


def facts_html(found: list[tuple[str, str]]) -> str:
    """A list of terms in as many columns as fit; Streamlit's own metrics are too large for so many."""
    grid = "display: grid; grid-template-columns: repeat(auto-fill, minmax(6.4rem, 1fr)); gap: 0.45rem 0.7rem"
    cells = "".join(
        f'<div><dt style="font-size: 0.78rem; opacity: 0.7; font-weight: 400">{escape_html(name)}</dt>'
        f'<dd style="margin: 0; font-size: 0.88rem; font-weight: 500; line-height: 1.25">{escape_html(value)}</dd></div>'
        for name, value in found
    )
    return f'<dl style="margin: 0; padding: 0; {grid}">{cells}</dl>' if found else "<p>Not measured yet.</p>"


def remarks(run: Run, m: Measurement | None, name: str) -> list[str]:
    """Sentences about the point: what ran, how it was measured, why it is as it is, and where a recorded run is from."""
    if m is None:
        return ["Click a point on a chart, or choose one.", f"{name} has not been measured."]
    predicted = [
        f"predicted {units.ms(m.predicted_ms)}" if m.predicted_ms else "",
        f"predicted {units.size(m.predicted_bytes)}" if m.predicted_bytes else "",
    ]
    ran = " · ".join(filter(None, [m.provider, m.clock, m.memory_source]))
    bound = "launch-bound: the host launches more slowly than the device computes" if m.launch_bound else ""
    return [text for text in (m.reason, *m.notes, bound, *predicted, ran, run.mark) if text]
