# SPDX-License-Identifier: GPL-2.0-only
"""The host's own programs and libraries, which amd64 guests have. sysroot.py is its like for arm64."""
import os
import re
import shutil
import subprocess
from pathlib import Path

from cache import Error

ELF_MACHINE = 62
SETUP = "tools/setup vm"
MORE_TOOLS = ["setpriv"]  # whose like in busybox drops no capabilities
# Lets programs find libraries that are in folders of the host's choice.
CONFIGURATION = {"etc/ld.so.cache": Path("/etc/ld.so.cache")}


def program(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise Error(f"{name} is not installed: run {SETUP}")
    return Path(path)


def libraries(path):
    """What ldd lists for a dynamic program, as guest path -> file."""
    result = subprocess.run(["ldd", str(path)], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    missing = re.search(r"(\S+) => not found", result.stdout)
    if missing:
        raise Error(f"{path} needs {missing.group(1)}, which is not installed")
    found = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", result.stdout, re.M)
    return {library.lstrip("/"): Path(library) for library in found}
