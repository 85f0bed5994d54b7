"""Every run that is kept: found again, named, looked at, compared, exported, imported.

Read from top to bottom: what is said (the sentence of what is chosen), the filters and the table, then what is chosen: one
run with its name, note, charts and files; or several side by side, what differs between them first. All of it comes with the
page's first run, which waits for no pandas and for no sentence; those that the list lacks are written a few at a time.
"""

import time

import streamlit as st

from attnlab import comparison, history, summary
from attnlab.run import Run
from attnlab.ui import headline, run_files, run_views, runs_table, shell, text
from attnlab.ui.parts import timer

NO_TIME_S = -1.0  # the first paint waits for none of them
REST_AFTER_S = 0.2  # the browser has drawn the table by then, and starts on the scripts of buttons and lists
REST_EVERY_S = 0.5  # between two goes at the sentences that are still to be written

shell.guard()
state = st.session_state
store = shell.lab().store
shipped = runs_table.shipped()
# A visitor of a public server looks, compares and takes away, and changes nothing: Streamlit's server drops what a browser
# says of a widget that is disabled.
closed = shell.public() is not None

# What there is. What a button did comes first, for it changes the list.


def act(what: str, *args: object) -> None:
    """Deletes, or undoes that; before the page runs, so that the list is as the button left it."""
    if what == "delete":
        store.delete(args)
        runs_table.forget(args)
    else:
        store.undo_delete()


def rename(run_id: str) -> None:
    try:
        store.label(run_id, state[f"name of {run_id}"], state[f"note of {run_id}"])
    except ValueError as error:
        state["runs_refusal"] = str(error)


described = store.describe(runs_table.DESCRIBE_S if state.get("runs_painted") else NO_TIME_S)
there = runs_table.entries(store, shipped)
above, table = st.container(key=runs_table.ABOVE, gap=None), st.container()
above.empty()  # for a container with nothing in it takes no place
found = runs_table.left(there)
chosen = runs_table.chosen(found)
strangers = runs_table.strangers(there)

# The table, before what stands above it: it is what a visitor waits for.

with table:
    runs_table.draw(found)
runs_table.publish(chosen)
if not state.get("runs_painted"):
    time.sleep(REST_AFTER_S)


def opened(entry: history.Entry) -> Run | None:
    if entry.ships:
        return next(run for run in shell.recordings()[0].values() if run.id == entry.run.id)
    return store.load(entry.run.id)


runs = [run for entry in chosen[: comparison.MOST] if (run := opened(entry)) is not None]
runs.reverse()  # the older one is what the newer is held against
names = {entry.run.id: entry.title for entry in chosen}

# What is said, and what can be done with what is chosen.

with above, st.container():
    says, filters = st.container(gap="small"), st.container()
with says:
    if len(runs) > 1:
        headline.spoken(comparison.sentence(runs, run_views.compared()))
    else:
        headline.spoken(summary.sentence(runs[0]) if runs else runs_table.summary(there, found))
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        notes = [*([store.problem] if store.problem else []), *shell.recordings()[1]]
        notes += ["sentences are still being written"] * (not described)
        notes += [f"{strangers} of the link {'is' if strangers == 1 else 'are'} not here"] * bool(strangers)
        notes += [f"{len(chosen)} are chosen, compared are {len(runs)}"] * (len(chosen) > comparison.MOST)
        kept = [f":gray[{len(there):,} runs]", *(f":orange[{text.escape(note)}]" for note in notes)]
        st.markdown(" · ".join(kept), width="stretch")
        mine = tuple(entry.run.id for entry in chosen if not entry.ships and not entry.run.active)
        st.button(
            f"Delete {len(mine)}" if len(mine) > 1 else "Delete", key="runs_delete", on_click=act,
            args=("delete", *mine), disabled=closed or not mine, help="Hidden at once, gone for good a day later.",
        )  # fmt: skip
        hidden = store.deleted_count()
        st.button(
            f"Undo delete ({hidden})" if hidden else "Undo delete", key="runs_undo", on_click=act, args=("undo",),
            disabled=closed or not hidden, help="Brings back what was deleted last; possible for a day.",
        )  # fmt: skip
        with st.popover("Import"), st.form("runs_import", clear_on_submit=True, border=False):
            run_files.take_in(store, {entry.run.id for entry in shipped}, closed=closed)

with filters:
    runs_table.filters(there)
run_files.outcomes()
if refusal := state.pop("runs_refusal", ""):
    st.error(text.escape(refusal))

# What is chosen.

if len(runs) > 1:
    run_views.several(runs, [names[run.id] for run in runs])
elif runs:
    run_views.one(next(entry for entry in chosen if entry.run.id == runs[0].id), runs[0], rename, closed=closed)

# The rest of the list.


@timer(run_every=None if described else REST_EVERY_S)
def rest() -> None:
    if not state.pop("runs_page_runs", False):
        st.rerun()


state["runs_painted"] = state["runs_page_runs"] = True
rest()
