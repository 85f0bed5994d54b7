"""The doctor: what is installed here, whether it truly works, and what to do where it does not.

    finding     what is said of one thing: status, version, cause in plain words, remedy as a command
    causes      the text of an error → its cause and remedy, a table
    judgement   what the children answered → findings; the rules that need more than one answer
    summary     the line that says what the lab will use and why
    examination runs the children (attnlab.measure.probes), side by side, each with a time limit
    report      findings as a table for terminals, strict JSON, and a text for a bug tracker

Nothing is imported to find out: each try is a process of its own, so that what it finds cannot hurt whoever asks.
"""
