#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""arm64's userland: what scx_magpie is linked against, and what guests have. Run as a program it prints the folder.

Debian's packages are unpacked into the cache, not installed. There they stay as they are until the list below changes.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of ours is left in the checkout

from apt import Apt  # noqa: E402
from cache import CACHE, Error, locked, say  # noqa: E402

ELF_MACHINE = 183
SETUP = "tools/setup arm64"
MORE_TOOLS = ["rt-app"]
CONFIGURATION = {}
SUITE = "trixie"
ROOT = CACHE / "sysroot-arm64"
LIBRARIES = "usr/lib/aarch64-linux-gnu"
LOADER = "usr/lib/ld-linux-aarch64.so.1"
PACKAGES = {
    "to link": "libc6-dev linux-libc-dev libelf-dev zlib1g-dev",
    "to run": "libc6 libgcc-s1 libelf1t64 zlib1g libzstd1",
    "the guest's tools": "busybox-static bpftool coreutils jq rt-app rt-tests stress-ng util-linux",
    "bpftool, jq, rt-app": "libcap2 libjq1 libjson-c5 libonig5",
    # Not all that it depends on: that would include a compiler for graphics cards.
    "stress-ng": "libacl1 libapparmor1 libbsd0 libcrypt1 libdrm2 libegl1 libexpat1 libgbm1 libgles2 libglvnd0 libgmp10 "
                 "libjpeg62-turbo libjudydebian1 libkmod2 libmd0 libmpfr6 libsctp1 libssl3t64 libstdc++6 libxxhash0",
}


def root():
    """The folder, filled."""
    return unpacked(ROOT, "arm64", " ".join(PACKAGES.values()))


def unpacked(root, arch, packages):
    """The folder with these packages of an architecture."""
    stamp = root / "packages"
    if stamp.exists() and stamp.read_text() == packages:
        return root
    with locked("sysroot"):
        if stamp.exists() and stamp.read_text() == packages:
            return root
        apt = Apt(arch, [SUITE], f"{arch} packages", f"{arch} guests of Debian's programs need Debian, or a system with its apt")
        apt.refresh()
        say(f"fetching {arch} programs (Debian {SUITE}, {len(packages.split())} packages) ...")
        new = Path(tempfile.mkdtemp(dir=CACHE, prefix=".sysroot-"))
        try:
            new.chmod(0o755)
            with apt.download(packages.split()) as debs:
                for deb in debs:
                    subprocess.run(["dpkg-deb", "-x", deb, new], check=True)
            # A package that no other depends on has this link; libc.so, which is a linker's script, goes by it.
            (new / "lib").symlink_to("usr/lib")
            (new / "packages").write_text(packages)
            shutil.rmtree(root, ignore_errors=True)
            new.rename(root)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return root


def program(name):
    for folder in ("usr/bin", "usr/sbin"):
        if (root() / folder / name).is_file():
            return root() / folder / name
    raise Error(f"no {name} among arm64's packages (vm/sysroot.py lists them)")


def needed(path):
    """The libraries that an ELF file names itself; nothing for other files."""
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]$", text, re.M)


def libraries(path):
    """All libraries that a program needs, as guest path -> file. What ldd does, which runs only the host's programs."""
    found, names = {}, needed(path)
    while names:
        name = names.pop()
        target = LOADER if name == Path(LOADER).name else f"{LIBRARIES}/{name}"
        if target not in found:
            source = root() / target
            if not source.exists():
                raise Error(f"{path} needs {name}, which is not among arm64's packages (vm/sysroot.py lists them)")
            found[target] = source
            names += needed(source)
    if found:
        found[LOADER] = root() / LOADER
    return found


def files_of(root, unneeded):
    """Paths in the guest and files of what was unpacked at `root`, without those whose path matches `unneeded`."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not unneeded.match(name):
            yield name, path


if __name__ == "__main__":
    try:
        print(root())
    except Error as error:
        say(error)
        sys.exit(1)
