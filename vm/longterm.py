#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Linux 6.12 with sched_ext, which Debian's build of that long-term kernel leaves out. Run as a program it prints the image's path.

Debian's source is built once, into the cache, with as little as a guest needs (longterm.config). `tools/setup longterm`
installs what that needs.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of ours is left in the checkout

from apt import Apt  # noqa: E402
from cache import CACHE, Error, locked, replacing, say  # noqa: E402

SOURCE = "linux-source-6.12"
SUITE = "trixie"
CONFIG = Path(__file__).with_name("longterm.config")
IMAGE = CACHE / "kernels" / SOURCE / "vmlinuz"


def make(tree, *words):
    done = subprocess.run(["make", "-s", "-C", tree, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        print(*done.stderr.splitlines()[-20:], sep="\n", file=sys.stderr)
        raise Error(f"cannot build {SOURCE}, as make says above: run tools/setup longterm, which installs what that needs")


def image():
    """The image; built when it is not there, or when the configuration has changed since."""
    def current():
        return IMAGE.exists() and IMAGE.stat().st_mtime > CONFIG.stat().st_mtime

    if current():
        return IMAGE
    with locked("longterm"):
        if current():
            return IMAGE
        apt = Apt("amd64", [SUITE], "the kernel's source", "build a 6.12 of your own, for vm/run --kernel /path/to/image")
        apt.refresh()
        folder = Path(tempfile.mkdtemp(dir=CACHE, prefix=".longterm-"))
        try:
            say(f"fetching {SOURCE} (Debian {SUITE}, 150 MB) ...")
            with apt.download([SOURCE]) as [deb]:
                subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
            say("building it, once (some ten minutes) ...")
            subprocess.run(["tar", "-C", folder, "-xf", folder / "usr/src" / f"{SOURCE}.tar.xz"], check=True)
            tree = folder / SOURCE
            make(tree, "tinyconfig")
            with open(tree / ".config", "a") as config:
                config.write(CONFIG.read_text())
            make(tree, "olddefconfig")
            make(tree, f"-j{os.cpu_count()}", "bzImage")
            with replacing(IMAGE) as file:
                file.write((tree / "arch/x86/boot/bzImage").read_bytes())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return IMAGE


if __name__ == "__main__":
    try:
        print(image())
    except Error as error:
        say(error)
        sys.exit(1)
