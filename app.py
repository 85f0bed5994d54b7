"""AttnLab in the browser: `streamlit run app.py`. Page configuration and navigation; a page is a script in pages/."""

import streamlit as st

from attnlab.ui import shell

st.set_page_config(page_title="AttnLab", page_icon="⚡", layout="wide", initial_sidebar_state=310)
shell.navigate()
