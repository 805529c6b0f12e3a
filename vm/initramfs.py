# SPDX-License-Identifier: GPL-2.0-only
"""Makes the guest's root file system: initramfs archives in the kernel's "newc" cpio format.

The base (busybox, the tools, their libraries) is built once and cached, uncompressed: under emulation unpacking costs more
than it saves. What belongs to one run (init, command, scheduler, carried files) is a second archive after it: the kernel
unpacks all that it is given, one over the other.
"""
import hashlib
import os
import re
import shlex
import shutil
import stat
from pathlib import Path

import systemd
from cache import CACHE, Error, locked, replacing, say

TOOLS = ["hackbench", "stress-ng", "bpftool", "jq", "taskset", "chrt", "nice"]
FOLDERS = ["dev", "proc", "sys", "tmp", "run", "root", "mnt", "boot", "etc", "vm", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64",
           "usr/local/bin", "usr/local/sbin", "usr/local/lib", "var/lib", "var/tmp", "var/log"]
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/sh": "busybox",
         "var/run": "/run", "etc/mtab": "/proc/mounts"}
TEXTS = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
         "etc/group": "root:x:0:\nnogroup:x:65534:\n", "etc/hosts": "127.0.0.1 localhost magpie\n"}


class Archive:
    """Writes a newc archive; makes the folders of what is added. `userland` has the libraries (host.py, sysroot.py)."""

    def __init__(self, file, userland):
        self.file, self.userland = file, userland
        self.seen = set()

    def _entry(self, path, mode, size=0):
        name = path.encode() + b"\0"
        fields = [len(self.seen), mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name), 0]
        self.file.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
        self._pad(6 + 13 * 8 + len(name))
        self.seen.add(path)

    def _pad(self, size):
        self.file.write(b"\0" * (-size % 4))

    def folder(self, path):
        if path and path not in self.seen:
            self.folder(os.path.dirname(path))
            self._entry(path, stat.S_IFDIR | 0o755)

    def content(self, path, data, mode=0o644):
        self.folder(os.path.dirname(path))
        self._entry(path, stat.S_IFREG | mode, len(data))
        self.file.write(data)
        self._pad(len(data))

    def link(self, path, target):
        self.folder(os.path.dirname(path))
        self._entry(path, stat.S_IFLNK | 0o777, len(os.fsencode(target)))
        self.file.write(os.fsencode(target))
        self._pad(len(os.fsencode(target)))

    def copy(self, path, source):
        """A host's file or folder, and the libraries that its programs need."""
        path = merged_usr(path)
        if path in self.seen:
            return
        if source.is_dir():
            self.folder(path)
            for child in sorted(source.iterdir()):
                if child.is_symlink():
                    self.link(f"{path}/{child.name}", os.readlink(child))
                else:
                    self.copy(f"{path}/{child.name}", child)
            return
        self.content(path, source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
        machine = elf_machine(source)
        if machine == self.userland.ELF_MACHINE:
            for library, file in self.userland.libraries(source).items():
                self.copy(library, file)
        elif machine and os.access(source, os.X_OK):
            raise Error(f"{source} is a program for another architecture than the guest's")

    def as_is(self, path, source):
        """A file, link or folder; what it needs is there."""
        if source.is_symlink():
            self.link(path, os.readlink(source))
        elif source.is_dir():
            self.folder(path)
        else:
            self.content(path, source.read_bytes(), stat.S_IMODE(source.stat().st_mode))

    def end(self):
        self._entry("TRAILER!!!", 0)


def merged_usr(path):
    """/bin, /lib and the like are links in the guest, as in today's distributions."""
    return re.sub(r"^(bin|sbin|lib|lib64)/", r"usr/\1/", os.path.normpath(path).lstrip("/"))


def elf_machine(path):
    """The architecture's number in an ELF file's head; None for other files."""
    with open(path, "rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if head.startswith(b"\x7fELF") and len(head) == 20 else None


def base(userland):
    """The cached archive of what every guest has; rebuilt when one of its parts changes."""
    parts = {f"usr/bin/{name}": userland.program(name) for name in ["busybox", *TOOLS, *userland.MORE_TOOLS]}
    if userland.libraries(parts["usr/bin/busybox"]):
        raise Error(f"busybox is not a static build: run {userland.SETUP} (package busybox-static)")
    parts |= userland.CONFIGURATION
    for tool in list(parts.values()):
        if elf_machine(tool) == userland.ELF_MACHINE:
            parts |= {merged_usr(path): source for path, source in userland.libraries(tool).items()}
    key = hashlib.sha256(Path(__file__).read_bytes())
    for path, source in sorted(parts.items()):
        state = source.stat()
        key.update(f"{path} {source} {state.st_size} {state.st_mtime_ns}\n".encode())
    name = userland.__name__
    target = CACHE / "initramfs" / f"{name}-{key.hexdigest()[:16]}.cpio"
    if target.exists():
        return target
    with locked("initramfs"):
        if target.exists():
            return target
        for old in target.parent.glob(f"{name}-*.cpio"):
            old.unlink()
        say("packing the guest's tools ...")
        with replacing(target) as file:
            archive = Archive(file, userland)
            for path in FOLDERS:
                archive.folder(path)
            for path, link in LINKS.items():
                archive.link(path, link)
            for path, text in TEXTS.items():
                archive.content(path, text.encode())
            for path, source in parts.items():
                archive.copy(path, source)
            archive.end()
    return target


def write(file, userland, command, nonce, carried, with_systemd, with_bus):
    """The whole initramfs for one run. `carried` maps guest paths to host files."""
    with open(base(userland), "rb") as common:
        shutil.copyfileobj(common, file)
    archive = Archive(file, userland)
    archive.content("init", Path(__file__).with_name("init").read_bytes(), 0o755)
    archive.content("vm/job", f"{shlex.join(command)}\n".encode())
    archive.content("vm/nonce", f"{nonce}\n".encode())
    # Before what is carried: its libraries are newer than the host's.
    if with_systemd:
        for path, source in systemd.files(with_bus):
            archive.as_is(path, source)
        archive.content("etc/machine-id", systemd.MACHINE_ID.encode())
    for path, source in carried.items():
        archive.copy(path, source)
    archive.end()
    file.flush()
