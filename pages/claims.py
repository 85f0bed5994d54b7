"""What people say of FlashAttention, tested on this machine.

Read from top to bottom: whose runs (this machine's or recorded ones), the count in a sentence, then the claims, each with
its setting, what was measured and a verdict by the rule in attnlab/claims.py. A button measures one, or all that can be.
`rows` redraws itself while something is measured; `follow` runs the page again when that, or the device, is another.
"""

import streamlit as st

from attnlab import claims
from attnlab.run import Run
from attnlab.ui import head, headline, link, shared_runs, shell, text
from attnlab.ui.parts import part

EVERY_S = 0.5
MEASURE_HERE = "Measure on this machine"
BADGES = {
    claims.HOLDS: ":green-badge[✓ holds]",
    claims.FAILS: ":red-badge[✗ does not hold]",
    claims.CANNOT: ":gray-badge[– cannot be tested here]",
    claims.OPEN: ":blue-badge[not measured yet]",
}

shell.guard()
lab = shell.lab()
state = st.session_state
asked = state.setdefault("claims_asked", {})  # claim → id of the run that shall answer it


def ask(names: tuple[str, ...]) -> None:
    state["claims_request"] = names


# Whose runs.

worker = lab.snapshot().worker
recordings, refused = shell.recordings()
recorded = tuple(recordings.values())
devices = tuple(dict.fromkeys(run.device.name for run in recorded if run.device))
fallback = MEASURE_HERE if worker.device is None or worker.device.kind == "cuda" or not devices else devices[0]
show = head.choose(
    worker,
    here=MEASURE_HERE,
    recorded=devices,
    refused=[*refused, link.unknown("c_show", ("here", *devices))],
    address="c_show",
    key="c_show",
    say=lambda name: f"Recorded on {name}",
    fallback=fallback,
    here_in_link="here",
)
replaying = show in devices
device = next(run.device for run in recorded if run.device and run.device.name == show) if replaying else worker.device

# What this tab does about it.

request = state.get("claims_request", ())
with shared_runs.changing():
    if request and worker.device is not None and not replaying:
        for claim in claims.CLAIMS:
            wanted = claim.name in request and not claim.untestable(worker.device)
            if wanted and (run_id := shell.submit(claim.sweep(worker.device.kind))):
                asked[claim.name] = run_id
    state.pop("claims_request", None)
    shared_runs.claim("claims", asked.values())


def runs() -> list[Run]:
    if replaying:
        return [run for run in recorded if run.device and run.device.name == show]
    found = [lab.snapshot(run_id).run for run_id in dict.fromkeys(asked.values())]
    return [run for run in found if run is not None]


def busy() -> bool:
    return not replaying and any(run.active for run in runs())


# What is shown.


@part(run_every=EVERY_S if busy() else None)
def rows() -> None:
    if state.get("claims_request"):  # a button in here runs this part alone
        st.rerun()
    there = runs()
    answers = {claim.name: claims.newest(claim, there) for claim in claims.CLAIMS}
    judged = {claim.name: claims.verdict(claim, answers[claim.name], device) for claim in claims.CLAIMS}
    mark = next((run.mark for run in there if run.mark), "")
    said = claims.sentence(judged.values())
    headline.spoken(f"{said.removesuffix('.')} ({mark})." if mark else said)
    with st.container(horizontal=True, vertical_alignment="center"):
        badge = f" :violet-badge[{text.escape(mark)}]" if mark else ""
        st.markdown(f"Each verdict is a rule in the code; a wrong claim is shown wrong.{badge}", width="stretch")
        st.button(
            "Test all that can be tested here",
            key="c_all",
            type="primary",
            on_click=ask,
            args=(tuple(claim.name for claim in claims.CLAIMS),),
            disabled=replaying or worker.device is None,
        )
    for claim in claims.CLAIMS:
        found, run = judged[claim.name], answers[claim.name]
        going_on = run is not None and run.active
        with st.container(border=True):
            said, measured, verdict, button = st.columns([5, 4, 2.2, 1.2], vertical_alignment="center")
            where = f"{text.escape(claim.setting)} · {text.escape(claim.source)}"
            said.markdown(f"**“{text.escape(claim.text)}”**  \n:small[{where}]")
            measured.markdown(text.escape(f"{run.activity or 'waiting'} …" if going_on else found.measured or "–"))
            verdict.markdown(":blue-badge[measuring]" if going_on else BADGES[found.verdict])
            button.button(
                "Test",
                key=f"c_{claim.name}",
                width="stretch",
                on_click=ask,
                args=((claim.name,),),
                disabled=replaying or worker.device is None or bool(claim.untestable(device)) or going_on,
            )


follow = head.watch(worker, busy)
rows()
follow()
