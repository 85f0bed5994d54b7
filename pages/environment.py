"""What is installed, whether it truly works, and what to do where it does not.

Read from top to bottom: what the lab will use and why, in a sentence; a row for each thing with its status, its cause and
its remedy as a command; the same as a report for a bug tracker. The checks run once a server, each in a process of its own;
`found` redraws itself while they do.
"""

import streamlit as st

from attnlab.ui import environment_rows, headline, shell
from attnlab.ui.parts import part

EVERY_S = 0.5

shell.guard()
examination = environment_rows.examination()
state = st.session_state


@part(run_every=EVERY_S if examination.look().running else None)
def found() -> None:
    look = examination.look()
    headline.spoken(look.summary)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(environment_rows.when(look), width="stretch")
        visitor = shell.public() is not None  # one of many, whose checks would disturb what is measured
        if st.button("Check again", key="e_again", type="primary", disabled=look.running or visitor):
            examination.start()
            st.rerun()  # the whole page: it then looks again and again
    environment_rows.rows(look)
    environment_rows.copyable(look)
    if state.get("e_running") and not look.running:
        state["e_running"] = False
        st.rerun()  # the page then stops to look


state["e_running"] = examination.look().running
found()
