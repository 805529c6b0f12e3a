# SPDX-License-Identifier: GPL-2.0-only
"""Finds, fetches and caches Debian's sched_ext kernels.

apt does the work, with a private state in our cache and the mirror of the machine's own apt sources: signatures, proxies
and mirrors are its business, nothing is installed and no root is needed. A kernel is named by its series, "6.18"; "7.2-bpo"
and "7.2-sid" ask for the build of trixie-backports or sid where both have one.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

MATRIX = ["6.16", "6.18", "6.19", "7.0", "7.2"]
DEFAULT = "6.18"

SUITES = {"bpo": "trixie-backports", "sid": "sid"}
# The kfuncs with implicit arguments of these backports have malformed BTF: no BPF scheduler loads. sid's builds are right.
MALFORMED_BPO = {"7.1", "7.2"}
DEBIAN = {"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky", "duke"}
# Up to 6.18 the image is in linux-image-*; then that is a metapackage, and linux-binary-* has it. Later is better.
KINDS = ["image", "binary-unsigned", "binary"]
PACKAGE = re.compile(r"linux-(image|binary|binary-unsigned)-((\d+\.\d+)(?:\.\d+)*)\+deb(\d+)-cloud-amd64$")
VMLINUZ = re.compile(r"\./(boot/vmlinuz-[^/]+|usr/lib/modules/[^/]+/vmlinuz)$")
CONFIG = re.compile(r"\./(boot/config-[^/]+|usr/lib/modules/[^/]+/config)$")
DAY = 86400

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scx_magpie"
KERNELS = CACHE / "kernels"


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


def run(argv, **options):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, text=True, **options)


def last_error(text):
    lines = text.splitlines()
    told = [line for line in lines if "Failed to fetch" in line] or [line for line in lines if line.startswith("E:")] or lines
    return told[0][2:].strip() if told else "no message"


class Apt:
    """apt with its own sources, lists and archives in our cache, and the machine's way to the network."""

    def __init__(self):
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise Error("kernels come from Debian's archive through apt, which is not here: "
                        "give a kernel image of your own with --kernel /path/to/bzImage")
        self.root = CACHE / "apt"
        self.stamp = self.root / "refreshed"
        self.env = dict(os.environ, APT_CONFIG=str(self.root / "apt.conf"), LC_ALL="C")

    def configure(self):
        for folder in ("lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        options = f"arch=amd64 signed-by={keyring}" if keyring.exists() else "arch=amd64"
        mirror = self.mirror()
        with replacing(self.root / "sources.list") as file:
            file.write("".join(f"deb [{options}] {mirror} {suite} main\n" for suite in SUITES.values()).encode())
        with replacing(self.root / "status"):
            pass
        # The machine's own Acquire settings (proxies, time-outs) hold; its hooks and extra indexes do not.
        acquire = [line for line in run(["apt-config", "dump"], capture_output=True, check=True).stdout.splitlines()
                   if line.startswith("Acquire::") and not line.startswith("Acquire::IndexTargets")]
        ours = {"APT::Architecture": "amd64", "APT::Sandbox::User": "", "APT::Update::Error-Mode": "any",
                "Acquire::Languages": "none", "Dir::Etc::main": "/dev/null", "Dir::Etc::parts": "/dev/null",
                "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
                "Dir::Etc::sourcelist": self.root / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
                "Dir::State": self.root, "Dir::State::lists": self.root / "lists",
                "Dir::State::status": self.root / "status", "Dir::Cache": self.root / "cache"}
        with replacing(self.root / "apt.conf") as file:
            file.write("\n".join(acquire + [f'{key} "{value}";' for key, value in ours.items()] + [""]).encode())

    @staticmethod
    def mirror():
        uris = run(["apt-get", "update", "--print-uris"], capture_output=True).stdout
        for uri, suite in re.findall(r"^'([^']+/)dists/([^/']+)/InRelease'", uris, re.M):
            if suite in DEBIAN:
                return uri
        raise Error("this machine's apt sources have no Debian release: "
                    "give a kernel image of your own with --kernel /path/to/bzImage")

    def refresh(self):
        """Brings the index up to date, at most daily. Returns when it was."""
        with contextlib.suppress(FileNotFoundError):
            if time.time() - self.stamp.stat().st_mtime < DAY:
                return self.stamp.stat().st_mtime
        self.configure()
        say("looking for Debian's newest kernels ...")
        result = run(["apt-get", "-q", "update"], env=self.env, capture_output=True)
        if result.returncode and not self.builds():
            raise Error(f"cannot read Debian's archive through this machine's apt sources: {last_error(result.stderr)}")
        self.stamp.touch()
        if result.returncode:
            say(f"cannot refresh the index of kernels ({last_error(result.stderr)}): going on with what is cached")
            an_hour_from_now = time.time() - DAY + 3600
            os.utime(self.stamp, (an_hour_from_now, an_hour_from_now))
        return self.stamp.stat().st_mtime

    def builds(self):
        """All kernel packages as (series, build, version key, package), oldest first."""
        names = run(["apt-cache", "search", "--names-only", "^linux-(image|binary)-.*cloud-amd64$"],
                    env=self.env, capture_output=True).stdout
        found = [match for match in (PACKAGE.match(line.split(" ")[0]) for line in names.splitlines()) if match]
        rows = []
        for match in found:
            kind, version, series, debian = match.groups()
            key = ([int(part) for part in version.split(".")], KINDS.index(kind))
            rows.append((series, "bpo" if debian == "13" else "sid", key, match.group()))
        return sorted(rows, key=lambda row: row[2])

    def show(self, package):
        text = run(["apt-cache", "show", "--no-all-versions", package], env=self.env, capture_output=True).stdout
        return dict(re.findall(r"^(Version|Size|SHA256): (.*)$", text, re.M))

    def extract(self, package, pattern, target):
        """Downloads a package and keeps the one file in it that matches."""
        folder = self.root / "download"  # the lock makes it ours; an interrupted run may have left something
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            terminal = sys.stderr.isatty()
            result = run(["apt-get", "-q" if terminal else "-qq", "download", package], env=self.env, cwd=folder,
                         stdout=sys.stderr if terminal else subprocess.DEVNULL, stderr=subprocess.PIPE)
            debs = list(folder.glob("*.deb"))
            if result.returncode or not debs:
                raise Error(f"cannot download {package}: {last_error(result.stderr)}")
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", debs[0]], stdout=subprocess.PIPE) as unpack:
                with tarfile.open(fileobj=unpack.stdout, mode="r|") as tar:
                    for member in tar:
                        if pattern.match(member.name):
                            with replacing(target) as file:
                                shutil.copyfileobj(tar.extractfile(member), file)
                            unpack.kill()
                            return
        finally:
            shutil.rmtree(folder)
        raise Error(f"{package} does not hold what was looked for ({pattern.pattern})")


def choose(builds, name):
    """The newest package for a kernel's name, or None."""
    series, _, build = name.partition("-")
    rows = [row for row in builds if row[0] == series and build in ("", row[1])]
    if not build and series in MALFORMED_BPO:
        rows = [row for row in rows if row[1] == "sid"] or rows
    return rows[-1] if rows else None


def record_of(name):
    """What we know of a cached kernel: its package, version, checksums, folder."""
    try:
        record = json.loads((KERNELS / f"{name}.json").read_text())
        return record if (KERNELS / record["package"] / "vmlinuz").exists() else None
    except (FileNotFoundError, ValueError, KeyError):
        return None


def fetch(name):
    """The cached kernel of that name; fetched, or replaced by a newer build, when need be."""
    if not re.fullmatch(r"\d+\.\d+(-(bpo|sid))?", name):
        raise Error(f"no kernel '{name}': name a series such as {DEFAULT} or 7.2-bpo, or a kernel image's path")
    record = record_of(name)
    if record and time.time() - record["checked"] < DAY:
        return record
    with locked("kernels"):
        try:
            apt = Apt()
            checked = apt.refresh()
        except Error:
            if record:
                return record
            raise
        builds = apt.builds()
        row = choose(builds, name)
        if not row and record:
            return record
        if not row:
            known = sorted({row[0] for row in builds}, key=lambda series: [int(part) for part in series.split(".")])
            raise Error(f"Debian's archive has no kernel {name}; it has: {' '.join(known) or 'none that could be read'}")
        build, package = row[1], row[3]
        vmlinuz = KERNELS / package / "vmlinuz"
        if not vmlinuz.exists():
            about = apt.show(package)
            version = ".".join(map(str, row[2][0]))
            say(f"fetching linux {version} (Debian {SUITES[build]}, {int(about['Size']) / 1e6:.0f} MB) ...")
            if build == "bpo" and row[0] in MALFORMED_BPO:
                say(f"note: this build of {row[0]} has malformed kfunc BTF, BPF schedulers do not load on it")
            try:
                apt.extract(package, VMLINUZ, vmlinuz)
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
        with replacing(KERNELS / f"{name}.json") as file:
            file.write(json.dumps(record, indent=2).encode())
        return record


def image(name):
    return KERNELS / fetch(name)["package"] / "vmlinuz"


def release(name):
    """What `uname -r` says in the guest."""
    return PACKAGE.match(fetch(name)["package"]).group()[len("linux-"):].split("-", 1)[1].replace("unsigned-", "")


def config(name):
    """The kernel's configuration, fetched when first asked for."""
    package = fetch(name)["package"]
    path = KERNELS / package / "config"
    if not path.exists():
        with locked("kernels"):
            apt = Apt()
            source = package if package.startswith("linux-image-") else f"linux-base-{release(name)}"
            if not apt.show(source):
                raise Error(f"Debian's archive no longer has the configuration of {release(name)}: omit --kernel-config")
            apt.extract(source, CONFIG, path)
    return path


def available():
    """For people: each kernel that can be asked for, what it resolves to, and whether it is here."""
    with locked("kernels"):
        apt = Apt()
        apt.refresh()
        builds = apt.builds()
    for series in dict.fromkeys(row[0] for row in builds):
        names = [series] + [f"{series}-{build}" for build in SUITES if choose(builds, series)[1] != build
                            and choose(builds, f"{series}-{build}")]
        for name in names:
            _, build, _, package = choose(builds, name)
            notes = ["in the matrix"] * (name in MATRIX) + ["cached"] * (KERNELS / package / "vmlinuz").exists()
            notes += ["malformed kfunc BTF"] * (build == "bpo" and series in MALFORMED_BPO)
            yield f"{name:8} {package:42} {SUITES[build]:17} {', '.join(notes)}".rstrip()
