# SPDX-License-Identifier: GPL-2.0-only
"""Debian's archive, through apt with sources, lists and archives of its own in our cache.

The way to the network is the machine's: signatures, proxies and mirrors are apt's business. Nothing is installed, no root
is needed, and dpkg's architectures stay as they are.
"""
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cache import CACHE, DAY, Error, replacing, say

DEBIAN = {"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky", "duke"}


def run(argv, **options):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, text=True, **options)


def last_error(text):
    lines = text.splitlines()
    told = [line for line in lines if "Failed to fetch" in line] or [line for line in lines if line.startswith("E:")] or lines
    return told[0][2:].strip() if told else "no message"


class Apt:
    """Some suites of one architecture. `what` is looked for; `instead` is what one may do where there is no Debian."""

    def __init__(self, arch, suites, what, instead):
        self.arch, self.suites, self.what, self.instead = arch, suites, what, instead
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise Error(f"{what} come from Debian's archive through apt, which is not here: {instead}")
        self.root = CACHE / "apt" / "-".join([arch, *suites])
        self.stamp = self.root / "refreshed"
        self.env = dict(os.environ, APT_CONFIG=str(self.root / "apt.conf"), LC_ALL="C")

    def configure(self):
        for folder in ("lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        options = f"arch={self.arch} signed-by={keyring}" if keyring.exists() else f"arch={self.arch}"
        mirror = self.mirror()
        with replacing(self.root / "sources.list") as file:
            file.write("".join(f"deb [{options}] {mirror} {suite} main\n" for suite in self.suites).encode())
        with replacing(self.root / "status"):
            pass
        # The machine's own Acquire settings (proxies, time-outs) hold; its hooks and extra indexes do not.
        acquire = [line for line in run(["apt-config", "dump"], capture_output=True, check=True).stdout.splitlines()
                   if line.startswith("Acquire::") and not line.startswith("Acquire::IndexTargets")]
        ours = {"APT::Architecture": self.arch, "APT::Architectures": self.arch, "APT::Sandbox::User": "",
                "APT::Update::Error-Mode": "any",
                "Acquire::Languages": "none", "Dir::Etc::main": "/dev/null", "Dir::Etc::parts": "/dev/null",
                "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
                "Dir::Etc::sourcelist": self.root / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
                "Dir::State": self.root, "Dir::State::lists": self.root / "lists",
                "Dir::State::status": self.root / "status", "Dir::Cache": self.root / "cache"}
        with replacing(self.root / "apt.conf") as file:
            file.write("\n".join(acquire + [f'{key} "{value}";' for key, value in ours.items()] + [""]).encode())

    def mirror(self):
        uris = run(["apt-get", "update", "--print-uris"], capture_output=True).stdout
        for uri, suite in re.findall(r"^'([^']+/)dists/([^/']+)/InRelease'", uris, re.M):
            if suite in DEBIAN:
                return uri
        raise Error(f"{self.what} come from Debian's archive, which this machine's apt sources do not have: {self.instead}")

    def refresh(self):
        """Brings the index up to date, at most daily. Returns when it was."""
        with contextlib.suppress(FileNotFoundError):
            if time.time() - self.stamp.stat().st_mtime < DAY:
                return self.stamp.stat().st_mtime
        had_one = self.stamp.exists()
        self.configure()
        say(f"looking for Debian's newest {self.what} ...")
        result = run(["apt-get", "-q", "update"], env=self.env, capture_output=True)
        if result.returncode and not had_one:
            raise Error(f"cannot read Debian's archive through this machine's apt sources: {last_error(result.stderr)}")
        self.stamp.touch()
        if result.returncode:
            say(f"cannot refresh the index of {self.what} ({last_error(result.stderr)}): going on with what is cached")
            an_hour_from_now = time.time() - DAY + 3600
            os.utime(self.stamp, (an_hour_from_now, an_hour_from_now))
        return self.stamp.stat().st_mtime

    def search(self, pattern):
        """The packages whose name matches."""
        found = run(["apt-cache", "search", "--names-only", pattern], env=self.env, capture_output=True).stdout
        return [line.split(" ")[0] for line in found.splitlines()]

    def show(self, package):
        text = run(["apt-cache", "show", "--no-all-versions", package], env=self.env, capture_output=True).stdout
        return dict(re.findall(r"^(Version|Size|SHA256): (.*)$", text, re.M))

    @contextlib.contextmanager
    def download(self, packages):
        """The packages' files, for the time being."""
        folder = self.root / "download"  # the lock makes it ours; an interrupted run may have left something
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            terminal = sys.stderr.isatty()
            result = run(["apt-get", "-q" if terminal else "-qq", "download", *packages], env=self.env, cwd=folder,
                         stdout=sys.stderr if terminal else subprocess.DEVNULL, stderr=subprocess.PIPE)
            debs = list(folder.glob("*.deb"))
            if result.returncode or len(debs) < len(packages):
                raise Error(f"cannot download {' '.join(packages)}: {last_error(result.stderr)}")
            yield debs
        finally:
            shutil.rmtree(folder)
