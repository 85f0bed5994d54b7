"""What the hardware allows: measured points under the device's roof, their floors, and the textbook's estimate put right.

Read from top to bottom: whose points and whose roof (the form), the finding in a sentence, the two charts, every point
against its floor, then the estimate on paper. All of it is arithmetic on numbers that are there; the page runs
again when a run on the live page brings more.
"""

import streamlit as st

from attnlab import estimate, hardware, roofline_figure, textbook, units, verdicts
from attnlab.problem import ProblemError
from attnlab.sweep import lengths_up_to
from attnlab.ui import chart, headline, kept, roofline_tables, run_choice, shape_form, shell, text

PREFIX = "r_"
CHART_HEIGHT = "max(340px, 50vh)"
THIS, NUMBERS = "The device of the points", "Two numbers"
GPUS = tuple(hardware.names())
FIELDS = {
    "gpu": kept.one_of(THIS, (THIS, NUMBERS, *GPUS)),
    "peak": kept.number(312.0, 0.001, 1e6),
    "bandwidth": kept.number(2.039, 0.001, 1e4),
    **shape_form.FIELDS,
}

shell.guard()

# The form.

run, worker, follow = run_choice.choose("r_show")
mark = run.mark if run else ""
kept.fill(PREFIX, FIELDS)
with st.sidebar:
    held = {
        "gpu": st.selectbox("Roof", (THIS, NUMBERS, *GPUS), key="r_gpu"),
    }
    left, right = st.columns(2, gap="small")
    given = held["gpu"] == NUMBERS
    held["peak"] = left.number_input("Dense TFLOP/s", 0.001, 1e6, format="%g", key="r_peak", disabled=not given)
    held["bandwidth"] = right.number_input("TB/s", 0.001, 1e4, format="%g", key="r_bandwidth", disabled=not given)
    st.caption("Shape, where no point is measured")
    held |= shape_form.widgets(PREFIX, disabled=run is not None)
    note = kept.keep(PREFIX, FIELDS, held)
    refusal = ""
    try:
        problem = shape_form.problem(held)
    except ProblemError as error:
        problem, refusal = shape_form.USUAL, str(error)
    for said, say in ((refusal, st.error), (note, st.warning)):
        if said:
            say(text.escape(said))

# What stands under which roof.

problems = (
    [run.sweep.at(seq) for seq in run.sweep.seqs] if run else [problem.at_seq(s) for s in lengths_up_to(problem.seq_q)]
)
dtype = problems[-1].dtype
device = run.device if run else worker.device
if held["gpu"] == NUMBERS:
    roofs = (
        estimate.Roof(
            peak_tflops=held["peak"], bandwidth_tbs=held["bandwidth"], device="Two numbers", source=estimate.GIVEN
        ),
    )
elif held["gpu"] == THIS:
    roofs = estimate.roofs(device, dtype)
else:
    sheet = estimate.data_sheet_roof(held["gpu"], dtype)
    roofs = (sheet,) if sheet else ()
roof = roofs[0] if roofs else None
measurements = run.measurements if run else ()
standings = [s for m in measurements if (s := estimate.standing(m, roofs))]

# What is shown.

said = estimate.sentence(standings, roof, problems[-1])
headline.spoken(verdicts.with_mark(said, run) if run else said)
where = units.shape(problems[-1])
badge = f":violet-badge[{text.escape(mark)}] " if mark else ""
words = roof.words if roof else f"No roof is known of {device.name if device else 'this device'} in {dtype}"
st.markdown(f"{badge}:small[{text.escape(words)} · {where}]", help=text.escape(roof.provenance) if roof else None)

first, second = chart.slots(2, 2)
with first:
    chart.plotly_chart(
        roofline_figure.roofline(roofs, standings, problems, mark),
        key="r_roofline",
        height=CHART_HEIGHT,
        alt=f"Roofline: TFLOP/s reached against FLOP per byte. {words}",
    )
with second:
    chart.plotly_chart(
        roofline_figure.floors(roof, standings, problems, mark),
        key="r_floors",
        height=CHART_HEIGHT,
        alt="Milliseconds against sequence length, measured, and the floors of standard and flash",
    )

st.subheader("Predicted and measured", anchor=False)
st.markdown(text.escape(estimate.model_sentence(standings)) + (f" :violet-badge[{text.escape(mark)}]" if mark else ""))
roofline_tables.points(standings, mark)
st.caption(
    "Bytes: a flash path moves each tensor once; standard moves every step over the scores (compiled and sdpa-math are taken "
    "as standard, an approximation). FLOPs: the pairs that the mask leaves. Floor: the larger of FLOPs ÷ dense peak and "
    "bytes ÷ bandwidth. Predicted: the same with the matrix product and the copy measured there, where they are known."
)

st.subheader("The estimate on paper", anchor=False)
st.markdown(text.escape(textbook.what_is_wrong()))
roofline_tables.on_paper()

follow()
