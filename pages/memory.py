"""What fits: what each path needs part by part, the longest sequence, the KV cache of a long context, and several devices.

Read from top to bottom: which device and which shape (the form), the finding in a sentence, the curve under the capacity
with measured points over it, the parts, predictions against measured peaks, then the budget of 128K and its split over
devices. All of it is arithmetic; the page runs again when a run on the live page brings more points.
"""

import streamlit as st

from attnlab import budget, estimate, hardware, memory_figure, memory_plan, units, verdicts
from attnlab.problem import DTYPE_BYTES, ProblemError
from attnlab.sweep import powers_of_two
from attnlab.ui import chart, headline, kept, memory_tables, run_choice, shape_form, shell, text
from attnlab.ui.local_link import live_link

PREFIX = "m_"
CHART_HEIGHT = "max(340px, 48vh)"
THIS, NUMBER = "The device of the points", "A number of GiB"
GPUS = tuple(hardware.names())
LENGTHS = "131072, 65536, 20000, 4100"
FIELDS = {
    "gpu": kept.one_of(THIS, (THIS, NUMBER, *GPUS)),
    "gib": kept.number(80.0, 0.001, 1e6),
    **shape_form.FIELDS,
    "lengths": kept.Field(LENGTHS, str, ""),
    "layers": kept.whole(32, 1, 1024),
    "block": kept.whole(budget.BLOCK_TOKENS, 1, 65_536),
    "cache_dtype": kept.one_of("bfloat16", tuple(DTYPE_BYTES)),
    "devices": kept.whole(budget.DEVICES[-1], 1, 1024),
}

shell.guard()
state = st.session_state

# The form.

run, worker, follow = run_choice.choose("m_show")
mark = run.mark if run else ""
kept.fill(PREFIX, FIELDS)


def take_shape() -> None:
    """The shape of the points into the form, before the page runs."""
    problem = run.sweep.at(run.sweep.seqs[-1])
    state.update({PREFIX + name: value for name, value in shape_form.values_of(problem).items()})


with st.sidebar:
    held = {"gpu": st.selectbox("Device", (THIS, NUMBER, *GPUS), key="m_gpu")}
    by_number = held["gpu"] == NUMBER
    held["gib"] = st.number_input("GiB", 0.001, 1e6, key="m_gib", format="%g", disabled=not by_number)
    held |= shape_form.widgets(PREFIX)
    st.button("Take the shape of the points", key="m_take", on_click=take_shape, disabled=run is None, width="stretch")
    says = st.container()

refusal = ""
try:
    problem = shape_form.problem(held)
except ProblemError as error:
    problem, refusal = shape_form.USUAL, str(error)

device = run.device if run else worker.device
kind = device.kind if device and held["gpu"] == THIS else "cuda"
if held["gpu"] == NUMBER:
    name, capacity_bytes, source = "this device", int(held["gib"] * 2**30), "given"
elif held["gpu"] == THIS:
    name, capacity_bytes = (device.name, device.total_bytes) if device else ("this device", 80 << 30)
    source = "as its driver says" if kind == "cuda" else "host memory"
else:
    name, capacity_bytes = held["gpu"], hardware.memory_bytes(held["gpu"])
    source = hardware.lookup(held["gpu"]).source

# What fits.

of_run = run is not None and held["gpu"] == THIS  # then the capacity is the run's too
said = memory_plan.sentence(problem, capacity_bytes, name, kind)
headline.spoken(verdicts.with_mark(said, run) if of_run else said)
checked = (
    memory_figure.checked(run.measurements, kind if run is None else run.device.kind) if run and run.device else []
)
same = (
    run is not None and run.sweep.seq_q is None and units.shape(run.sweep.at(run.sweep.seqs[0])) == units.shape(problem)
)
here = run is not None and run.device is not None and hardware.same_card(run.device.name, name)
drawn_points = checked if same and here else []
badge = f":violet-badge[{text.escape(mark)}] " if (drawn_points or of_run) and mark else ""
beside = "" if drawn_points or not checked else " · the points are of another device or shape and stay out of the chart"
line = f"{name}: {units.size(capacity_bytes)}, {source} · {units.shape(problem)}{beside}"
st.markdown(f"{badge}:small[{text.escape(line)}]")
seqs = powers_of_two(max(budget.CONTEXT, problem.seq_kv))
chart.plotly_chart(
    memory_figure.figure(
        problem, seqs, capacity_bytes, f"{name}: {units.size(capacity_bytes)}", drawn_points, kind, mark
    ),
    key="m_curve",
    height=CHART_HEIGHT,
    alt=f"Memory needed against sequence length by standard and flash, and the {units.size(capacity_bytes)} of {name}",
)

st.subheader(f"Part by part, at sequence {units.sequence(problem.seq_kv)}", anchor=False)
memory_tables.parts(problem, capacity_bytes, kind)

st.subheader("Predicted and measured", anchor=False)
st.markdown(
    text.escape(memory_figure.deviation_sentence(checked)) + (f" :violet-badge[{text.escape(mark)}]" if mark else "")
)
memory_tables.checked(checked, mark)
st.caption(
    "Above the inputs. For short sequences, whose scores are no larger than the inputs, the copies of Q, K and V that PyTorch "
    "makes for the products decide in standard attention; the plan leaves these out."
)

# The budget of a long context.

st.subheader("A context of 128K", anchor=False)
st.markdown(text.escape(budget.context_sentence(problem, capacity_bytes, name)))
columns = st.columns([4, 1, 1, 1], gap="small", vertical_alignment="bottom")
held["lengths"] = columns[0].text_input("Lengths of the sequences in the cache", key="m_lengths", max_chars=20_000)
held["layers"] = columns[1].number_input("Layers", 1, 1024, step=1, key="m_layers")
held["block"] = columns[2].number_input("Block, tokens", 1, 65_536, step=1, key="m_block")
held["cache_dtype"] = columns[3].selectbox("Cache dtype", tuple(DTYPE_BYTES), key="m_cache_dtype")
cache = None
try:
    cache = budget.KVCache(
        lengths=budget.read_lengths(held["lengths"]),
        layers=held["layers"],
        kv_heads=problem.kv_heads,
        head_dim=problem.head_dim,
        dtype=held["cache_dtype"],
        block_tokens=held["block"],
    )
    st.markdown(text.escape(cache.sentence))
except ProblemError as error:
    st.error(text.escape(str(error)))
cells = st.columns(4, gap="small")
figures = (
    ("Padded to the longest", cache and units.size(cache.padded_bytes)),
    ("In blocks", cache and units.size(cache.paged_bytes)),
    ("Saved by paging", cache and units.percent(cache.saved_share)),
    ("One token, all layers", cache and units.size(cache.token_bytes)),
)
for cell, (label, value) in zip(cells, figures, strict=True):
    cell.metric(label, value or "–")

# Several devices.

with st.container(horizontal=True, vertical_alignment="center", wrap=False):
    st.subheader("Heads over several devices", width="stretch", anchor=False)
    st.markdown(":small[:gray[Devices]]", width="content", wrap=False)
    held["devices"] = st.number_input(
        "Devices", 1, 1024, step=1, key="m_devices", label_visibility="collapsed", width=160
    )
roof = next(iter(estimate.roofs(device, problem.dtype)), None) if held["gpu"] == THIS else None
roof = estimate.data_sheet_roof(name, problem.dtype) if held["gpu"] in GPUS else roof
memory_tables.shares(problem, held["devices"], capacity_bytes, cache)
try:
    share = budget.split(problem, held["devices"])
    st.markdown(text.escape(budget.product_sentence(problem, roof, held["devices"])))
    live_link(share)
except ProblemError as error:
    st.error(text.escape(str(error)))

note = kept.keep(PREFIX, FIELDS, held)
for said, say in ((refusal, says.error), (note, says.warning)):
    if said:
        say(text.escape(said))

follow()
