# SPDX-License-Identifier: GPL-2.0-only
"""The cache, where what is downloaded or built is kept, and is complete when it is seen. How errors are told."""
import contextlib
import fcntl
import os
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scx_magpie"
DAY = 86400


class Error(Exception):
    """What went wrong and what to do about it, in one line."""


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(name):
    """One process at a time; the kernel drops the lock if we die."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that prepares {name} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing(path):
    """A file that appears complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(fd, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
