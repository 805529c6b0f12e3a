# SPDX-License-Identifier: GPL-2.0-only
"""Finds, fetches and caches Debian's sched_ext kernels.

A kernel is named by its series, "6.18"; "7.2-bpo" and "7.2-sid" ask for the build of trixie-backports or sid where
both have one.
"""
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import time

from apt import Apt
from cache import CACHE, DAY, Error, locked, replacing, say

MATRIX = ["6.16", "6.18", "6.19", "7.0", "7.2", "7.3"]
DEFAULT = "6.18"

# These work on CPUs without cmpxchg16b. kmalloc_nolock(), which came with 6.18, needs it. Without it 6.18 queues no task_work for
# a BPF program, so that cpu.max acts a tick later; from 6.19 on no task can be attached (-ENOMEM), for its BPF storage needs it.
WITHOUT_CX16 = ["6.16"]

SUITES = {"bpo": "trixie-backports", "sid": "sid"}
# The kfuncs with implicit arguments of these amd64 backports have malformed BTF: no BPF scheduler loads. sid's are right.
MALFORMED_BPO = {("amd64", "7.1"), ("amd64", "7.2")}
# Up to 6.18 the image is in linux-image-*; then that is a metapackage, and linux-binary-* has it. Later is better.
KINDS = ["image", "binary-unsigned", "binary"]
PACKAGE = re.compile(r"linux-(image|binary|binary-unsigned)-((\d+\.\d+)(?:\.\d+)*)\+deb(\d+)-cloud-(amd64|arm64)$")
VMLINUZ = re.compile(r"\./(boot/vmlinuz-[^/]+|usr/lib/modules/[^/]+/vmlinuz)$")
CONFIG = re.compile(r"\./(boot/config-[^/]+|usr/lib/modules/[^/]+/config)$")

KERNELS = CACHE / "kernels"


def archive(arch):
    return Apt(arch, list(SUITES.values()), "kernels", "give a kernel image of your own with --kernel /path/to/image")


def builds(apt):
    """All kernel packages as (series, build, version key, package), oldest first."""
    rows = []
    for match in filter(None, map(PACKAGE.match, apt.search(f"^linux-(image|binary)-.*cloud-{apt.arch}$"))):
        kind, version, series, debian, _ = match.groups()
        key = ([int(part) for part in version.split(".")], KINDS.index(kind))
        rows.append((series, "bpo" if debian == "13" else "sid", key, match.group()))
    return sorted(rows, key=lambda row: row[2])


def extract(apt, package, pattern, target):
    """Downloads a package and keeps the one file in it that matches."""
    with apt.download([package]) as [deb], \
            subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as unpack, \
            tarfile.open(fileobj=unpack.stdout, mode="r|") as tar:
        for member in tar:
            if pattern.match(member.name):
                with replacing(target) as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
                unpack.kill()
                return
    raise Error(f"{package} does not hold what was looked for ({pattern.pattern})")


def choose(rows, name, arch):
    """The newest package for a kernel's name, or None."""
    series, _, build = name.partition("-")
    rows = [row for row in rows if row[0] == series and build in ("", row[1])]
    if not build and (arch, series) in MALFORMED_BPO:
        rows = [row for row in rows if row[1] == "sid"] or rows
    return rows[-1] if rows else None


def record_file(name, arch):
    return KERNELS / f"{name}-{arch}.json"


def record_of(name, arch):
    """What we know of a cached kernel: its package, version, checksums, folder."""
    try:
        record = json.loads(record_file(name, arch).read_text())
        return record if (KERNELS / record["package"] / "vmlinuz").exists() else None
    except (FileNotFoundError, ValueError, KeyError):
        return None


def fetch(name, arch):
    """The cached kernel of that name; fetched, or replaced by a newer build, when need be."""
    if not re.fullmatch(r"\d+\.\d+(-(bpo|sid))?", name):
        raise Error(f"no kernel '{name}': name a series such as {DEFAULT} or 7.2-bpo, or a kernel image's path")
    record = record_of(name, arch)
    if record and time.time() - record["checked"] < DAY:
        return record
    with locked("kernels"):
        try:
            apt = archive(arch)
            checked = apt.refresh()
        except Error:
            if record:
                return record
            raise
        rows = builds(apt)
        row = choose(rows, name, arch)
        if not row and record:
            return record
        if not row:
            known = sorted({row[0] for row in rows}, key=lambda series: [int(part) for part in series.split(".")])
            raise Error(f"Debian's archive has no kernel {name}; it has: {' '.join(known) or 'none that could be read'}")
        build, package = row[1], row[3]
        vmlinuz = KERNELS / package / "vmlinuz"
        if not vmlinuz.exists():
            about = apt.show(package)
            version = ".".join(map(str, row[2][0]))
            say(f"fetching linux {version} for {arch} (Debian {SUITES[build]}, {int(about['Size']) / 1e6:.0f} MB) ...")
            if build == "bpo" and (arch, row[0]) in MALFORMED_BPO:
                say(f"note: this build of {row[0]} has malformed kfunc BTF, BPF schedulers do not load on it")
            try:
                extract(apt, package, VMLINUZ, vmlinuz)
            except Error as error:
                if not record:
                    raise
                say(f"{error}: going on with linux {record['version']}")
                return record
            pin = {"version": about["Version"], "suite": SUITES[build], "package_sha256": about["SHA256"],
                   "vmlinuz_sha256": hashlib.sha256(vmlinuz.read_bytes()).hexdigest()}
            with replacing(vmlinuz.with_name("pin.json")) as file:
                file.write(json.dumps(pin, indent=2).encode())
        pin = json.loads(vmlinuz.with_name("pin.json").read_text())
        record = {"package": package, "checked": checked, **pin}
        with replacing(record_file(name, arch)) as file:
            file.write(json.dumps(record, indent=2).encode())
        return record


def image(name, arch):
    return KERNELS / fetch(name, arch)["package"] / "vmlinuz"


def release(name, arch):
    """What `uname -r` says in the guest."""
    return PACKAGE.match(fetch(name, arch)["package"]).group()[len("linux-"):].split("-", 1)[1].replace("unsigned-", "")


def config(name, arch):
    """The kernel's configuration, fetched when first asked for."""
    package = fetch(name, arch)["package"]
    path = KERNELS / package / "config"
    if not path.exists():
        with locked("kernels"):
            apt = archive(arch)
            source = package if package.startswith("linux-image-") else f"linux-base-{release(name, arch)}"
            if not apt.show(source):
                raise Error(f"Debian's archive no longer has {source}: omit --kernel-config")
            extract(apt, source, CONFIG, path)
    return path


def available(arch):
    """For people: each kernel that can be asked for, what it resolves to, and whether it is here."""
    with locked("kernels"):
        apt = archive(arch)
        apt.refresh()
        rows = builds(apt)
    for series in dict.fromkeys(row[0] for row in rows):
        names = [series] + [f"{series}-{build}" for build in SUITES if choose(rows, series, arch)[1] != build
                            and choose(rows, f"{series}-{build}", arch)]
        for name in names:
            _, build, _, package = choose(rows, name, arch)
            notes = ["in the matrix"] * (name in MATRIX) + ["cached"] * (KERNELS / package / "vmlinuz").exists()
            notes += ["malformed kfunc BTF"] * (build == "bpo" and (arch, series) in MALFORMED_BPO)
            yield f"{name:8} {package:42} {SUITES[build]:17} {', '.join(notes)}".rstrip()
