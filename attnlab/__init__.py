"""AttnLab: see, live and on your own GPU, why FlashAttention is fast.

Rooms, from the slider to the kernel:

    pages/, attnlab.ui      what is shown; the only code that imports streamlit
    attnlab.lab             owns the worker process: queue, cancel, time limits, restarts, snapshots;
                            .board is what it shows, .supervisor the thread that talks to the worker
    attnlab.doctor          what is installed and whether it works, each check in a process of its own
    attnlab.store           every run and every event, in SQLite, as it arrives; .keeper is the file, or memory in its
                            place, .database what may be done to a file
    attnlab.history, .comparison    the list of runs, and runs side by side
    attnlab.exchange, .export, .tabular, .html_page, .picture    runs as files, and files as runs
    attnlab.sweep           which points, in which order
    attnlab.worker          the only process that imports torch; runs attnlab.paths, timed by attnlab.measure
    attnlab.problem, .cost, .hardware, .roofline, .measurement, .run, .device    facts and arithmetic, nothing imported
"""

__version__ = "0.1.0"
