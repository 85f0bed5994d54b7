"""What to do about a point that failed, in words: the second half of its reason."""

from __future__ import annotations

AGAIN = "measure again; if it comes back, leave the path out"
START_AGAIN = "see the Environment page or python -m attnlab doctor, mend what is wrong there, then run again"
TABLE = (  # the first line whose words stand in the reason, whatever the case
    (("no module named", "cannot be loaded", "cannot open shared object"),
     "install what is missing: pip install -r requirements.txt"),
    (("legal here:",),
     "name one of them in ATTNLAB_DEVICE, or none; where a GPU should be, see whether nvidia-smi still answers"),
    (("driver", "device cannot be used", "no cuda-capable device", "no cuda gpus", "fallen off", "initialization error",
      "nvml"),
     "see whether nvidia-smi still answers: a driver that is gone needs a reset of the card or a restart of the machine"),
    (("device-side assert", "illegal memory access", "misaligned address", "cuda"),
     "the other points are not touched by it; " + AGAIN),
    (("signal 9",), "a system that runs out of host memory kills like that: lower batch or sequence, then measure again"),
    (("connection", "could not resolve", "no route to host", "permission denied (publickey"),
     "see whether the machine that ATTNLAB_WORKER names answers, then run again"),
)  # fmt: skip
BY_STATUS = {
    "oom": "lower batch, heads or sequence, or take a flash path, which keeps no scores",
    "timeout": "take a shorter sequence or leave the path out",
    "fault": AGAIN,
}


def remedy(status: str, reason: str) -> str:
    """One clause; "" for a status that is no accident."""
    return (known(reason) if status == "fault" else "") or BY_STATUS.get(status, "")


def known(reason: str) -> str:
    """What helps against a reason whose words are known here; "" for another one."""
    said = reason.casefold()
    return next((what for words, what in TABLE if any(word in said for word in words)), "")


def remedy_at_start(why: str) -> str:
    """One clause about a worker that does not come; no path is to be left out for that."""
    what = known(why)
    return START_AGAIN if not what or AGAIN in what else what


def with_remedy(reason: str, what_to_do: str) -> str:
    """The two in one line."""
    return f"{reason.rstrip('.')}. {what_to_do[0].upper()}{what_to_do[1:]}" if what_to_do else reason
