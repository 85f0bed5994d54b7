"""Text of a machine made fit for strangers: no path, no name of a user or of the machine.

>>> scrub("ImportError: /home/ada/lab/.venv/lib/python3.12/site-packages/flash_attn_2_cuda.so: undefined symbol: _ZN3c10")
'ImportError: site-packages/flash_attn_2_cuda.so: undefined symbol: _ZN3c10'
>>> scrub("cannot read /srv/ada/secret.txt")
'cannot read …/secret.txt'
"""

from __future__ import annotations

import getpass
import os
import re
import socket

# An absolute path that no word, address or other path stands before.
PATH = re.compile(r"""(?<![\w/.~])~?(?:/[^\s/:;,'"()<>]+)+/?""")
SHORTEST_NAME = 3  # shorter ones are in every other word
NO_NAMES = {"root", "user", "localhost"}


def scrub(text: str) -> str:
    """`text` with every absolute path cut to what follows site-packages, or to its last part, and without names."""
    text = PATH.sub(_short, text)
    for name, instead in ((_user(), "<user>"), (socket.gethostname(), "<host>")):
        if len(name) >= SHORTEST_NAME and name not in NO_NAMES:
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", instead, text)
    return text


def _short(found: re.Match[str]) -> str:
    path = found[0]
    if packages := re.search(r"(?:site|dist)-packages/.*", path):
        return packages[0]
    if path.rstrip("/") == os.path.expanduser("~").rstrip("/") or re.fullmatch(
        r"/(?:home|Users)/[^/]+/?|/root/?", path
    ):
        return "~"
    return f"…/{path.rstrip('/').rpartition('/')[2]}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without an entry
        return ""
