#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Kernels that Debian does not build: Linux 6.12 with sched_ext, and others with other options.

    vm/longterm.py [SERIES [CONFIG_...=y]...]     builds it if that has not been done, and prints the image's path

SERIES is 6.12 or another one whose source Debian has, such as 7.3. Debian's source is built once, into the cache, with as little
as a guest needs (longterm.config), and the options given. `tools/setup longterm` installs what that needs.
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

SUITES = ["trixie", "trixie-backports", "sid"]
CONFIG = Path(__file__).with_name("longterm.config")


def make(tree, *words):
    done = subprocess.run(["make", "-s", "-C", tree, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        print(*done.stderr.splitlines()[-20:], sep="\n", file=sys.stderr)
        raise Error("cannot build the kernel, as make says above: run tools/setup longterm, which installs what that needs")


def image(series="6.12", options=()):
    """The image; built when it is not there, or when the configuration has changed since."""
    source = f"linux-source-{series}"
    wanted = CONFIG.read_text() + "".join(f"{option}\n" for option in options)
    folder = CACHE / "kernels" / "-".join([source, *(option.removeprefix("CONFIG_").removesuffix("=y") for option in options)])
    built, config = folder / "vmlinuz", folder / "config"

    def current():
        return built.exists() and config.exists() and config.read_text() == wanted

    if current():
        return built
    with locked("longterm"):
        if current():
            return built
        apt = Apt("amd64", SUITES, "the kernel's source", f"build a {series} of your own, for vm/run --kernel /path/to/image")
        apt.refresh()
        work = Path(tempfile.mkdtemp(dir=CACHE, prefix=".longterm-"))
        try:
            say(f"fetching {source} (150 MB) ...")
            with apt.download([source]) as [deb]:
                subprocess.run(["dpkg-deb", "-x", deb, work], check=True)
            say("building it, once (some ten minutes) ...")
            subprocess.run(["tar", "-C", work, "-xf", work / "usr/src" / f"{source}.tar.xz"], check=True)
            tree = work / source
            make(tree, "tinyconfig")
            with open(tree / ".config", "a") as file:
                file.write(wanted)
            make(tree, "olddefconfig")
            missing = [option for option in options if f"{option}\n" not in (tree / ".config").read_text()]
            if missing:
                raise Error(f"{source} does not take {' '.join(missing)}: an option it needs is not in longterm.config")
            make(tree, f"-j{os.cpu_count()}", "bzImage")
            with replacing(built) as file:
                file.write((tree / "arch/x86/boot/bzImage").read_bytes())
            with replacing(config) as file:
                file.write(wanted.encode())
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return built


if __name__ == "__main__":
    try:
        print(image(*sys.argv[1:2], options=sys.argv[2:]))
    except Error as error:
        say(error)
        sys.exit(1)
