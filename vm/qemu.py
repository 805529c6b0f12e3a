# SPDX-License-Identifier: GPL-2.0-only
"""Runs one guest: QEMU's command line, the choice of the accelerator, and the watch over a running guest."""
import ctypes
import json
import os
import re
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import initramfs
from cache import CACHE, Error, replacing, say
from machines import Amd64

EMULATOR, PANIC, WARNING, DIED, CANNOT, TIMEOUT, INTERRUPTED = 119, 120, 121, 122, 123, 124, 130

FATAL = re.compile(r"Kernel panic|\bOops\b|BUG: unable to handle|general protection fault")
COMPLAINT = re.compile(
    r"WARNING: (CPU: \d|\S+:\d+ at |(possible|inconsistent|suspicious|bad|held|lock|nested|SOFTIRQ)\b)"
    r"|(?<!MP-BIOS )\bBUG: |rcu: INFO: \S+.* stall|INFO: task .* blocked for more than", re.I)
# Warnings that no scheduler is to blame for. On kernels without 7e0ffb72de8a ("sched_ext: Fix stale direct dispatch state in
# ddsp_dsq_id") a task that was sent to a CPU by select_cpu() while a scheduler came or went is remembered as sent.
KERNEL_FLAW = re.compile(r"WARNING: .* (scx_dsq_insert_commit|mark_direct_dispatch)\b")
# QEMU 7.2 computes the flags of cmpxchg16b from a stale condition code: EFLAGS is then the low half of a pointer. Where that has
# the trap flag the guest gets a debug exception, else it may take a wrong branch, and oops. Guests with a kernel that can do without
# the instruction have CPUs without it (WITHOUT_CX16 in kernels.py), and should not end so any more; others still do, now and then.
# What becomes of one that does says nothing about its command.
EMULATOR_FLAW = re.compile(r"WARNING: .* exc_debug_kernel\b|\bEFLAGS: (?!00)[0-9a-f]{8}\b")
BEGINS = "vm: the command begins"  # from init
PAUSE = re.compile(r"vm: stand still for (\d+) s$")  # from a command, by /dev/kmsg
BOOTS = 3
PROBE_SECONDS = 10
POWER_OFF_SECONDS = 30
PANIC_SECONDS = 10


class Stream:
    """The job's stdout or stderr: passed on as it comes, up to the mark that init puts behind it."""

    def __init__(self, mark, sink):
        self.mark, self.sink, self.pending, self.end = mark, sink, b"", None

    def feed(self, data):
        if self.end is not None:
            return
        self.pending += data
        at = self.pending.find(self.mark)
        if at >= 0:
            self._pass_on(at)
            if b"\n" in self.pending:
                self.end = self.pending[len(self.mark):].split(b"\n")[0]
            return
        # Part of a mark may be at the end; no more than that is held back.
        at = self.pending.rfind(b"\0")
        held = at if at >= 0 and self.mark.startswith(self.pending[at:]) else len(self.pending)
        self._pass_on(held)

    def _pass_on(self, size):
        self.sink.write(self.pending[:size])
        self.sink.flush()
        self.pending = self.pending[size:]


class Console:
    """The guest kernel's console: kept, and searched for what a healthy kernel does not say."""

    def __init__(self, verbose):
        self.verbose, self.rest, self.lines = verbose, b"", []
        self.fatal = self.complaint = self.kernel_flaw = self.emulator_flaw = None
        self.begun, self.pause = False, 0

    def feed(self, data):
        if self.verbose:
            sys.stderr.buffer.write(data)
            sys.stderr.flush()
        *complete, self.rest = (self.rest + data).split(b"\n")
        for raw in complete:
            line = raw.decode(errors="replace").rstrip("\r")
            if self.fatal is None and FATAL.search(line):
                self.fatal = len(self.lines)
            if BEGINS in line:
                self.begun = True
            elif asked := PAUSE.search(line):
                self.pause = int(asked[1])
            elif KERNEL_FLAW.search(line):
                self.kernel_flaw = line
            elif EMULATOR_FLAW.search(line):
                self.emulator_flaw = line
            elif self.complaint is None and COMPLAINT.search(line):
                self.complaint = len(self.lines)
            self.lines.append(line)

    def show(self, first, count):
        for line in self.lines[max(first, 0):][:count]:
            print(f"  | {line}", file=sys.stderr)
        sys.stderr.flush()


def die_with_us():
    """QEMU must not outlive us, however we end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def stand_still(process, seconds):
    """Pauses QEMU: the guest's clock jumps, as with a host that is suspended. (By QEMU's monitor its clock would stand still, too.)"""
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGCONT)


class Guest:
    """One run of the command: boot() to its end, then report()."""

    def __init__(self, kernel, machine, accel, command, carried, timeout, verbose=False, with_systemd=False,
                 with_bus=False):
        self.kernel, self.machine, self.accel, self.command, self.carried = kernel, machine, accel, command, carried
        self.with_systemd, self.with_bus = with_systemd, with_bus
        self.timeout, self.console, self.late, self.qemu_says = timeout, Console(verbose), None, ""

    def boot(self, out, err):
        nonce = secrets.token_hex(16)
        self.streams = [Stream(b"\0" + nonce.encode(), sink) for sink in (out, err)]
        ours, theirs = zip(*(socket.socketpair() for _ in range(3)))
        with os.fdopen(os.memfd_create("initramfs"), "wb") as image, tempfile.TemporaryFile() as stderr:
            initramfs.write(image, self.machine.userland, self.command, nonce, self.carried, self.with_systemd, self.with_bus)
            # In a session of its own a Ctrl-C reaches only us; die_with_us covers the rest.
            process = subprocess.Popen(self.arguments(image, theirs), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=stderr, pass_fds=[end.fileno() for end in (image, *theirs)],
                                       preexec_fn=die_with_us, start_new_session=True)
            try:
                for end in theirs:
                    end.close()
                self.late = self.watch(ours, process)
            finally:
                if self.late or sys.exc_info()[0]:
                    process.kill()
                process.wait()
                stderr.seek(0)
                self.qemu_says = stderr.read().decode(errors="replace").strip()

    def arguments(self, image, ends):
        console, out, err = (end.fileno() for end in ends)
        return [self.machine.QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-kernel", str(self.kernel), "-initrd", f"/proc/self/fd/{image.fileno()}",
                "-append", self.machine.kernel_arguments(self.accel),
                "-chardev", f"socket,id=console,fd={console}", "-serial", "chardev:console",
                "-device", "virtio-serial-pci,id=ports",
                "-chardev", f"socket,id=out,fd={out}", "-device", "virtserialport,bus=ports.0,nr=1,chardev=out",
                "-chardev", f"socket,id=err,fd={err}", "-device", "virtserialport,bus=ports.0,nr=2,chardev=err",
                ] + self.machine.arguments(self.accel)

    def watch(self, ends, process):
        """Passes on what comes until QEMU closes its ends, or time is up: then it says what has not happened in time."""
        deadline = time.monotonic() + self.timeout
        waiting_for = f"{self.timeout:g} s are over and the command has not ended"
        with selectors.DefaultSelector() as selector:
            for end, sink in zip(ends, (self.console, *self.streams)):
                selector.register(end, selectors.EVENT_READ, sink)
            answered = doomed = False
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    return waiting_for
                for key, _ in selector.select(left):
                    try:
                        data = key.fileobj.recv(1 << 16)
                    except ConnectionResetError:
                        data = b""
                    if data:
                        key.data.feed(data)
                    else:
                        selector.unregister(key.fileobj)
                if self.console.pause:
                    deadline += self.console.pause
                    stand_still(process, self.console.pause)
                    self.console.pause = 0
                if not answered and all(stream.end is not None for stream in self.streams):
                    answered = True
                    ends[1].send(b"\n")
                    deadline = time.monotonic() + POWER_OFF_SECONDS
                    waiting_for = f"the guest has not powered off within {POWER_OFF_SECONDS} s"
                if self.console.fatal is not None and not doomed:
                    # A panic ends QEMU; should it not, what matters has been said.
                    doomed = True
                    deadline = min(deadline, time.monotonic() + PANIC_SECONDS)
        return None

    def status(self):
        """The command's exit status; None if it has not ended."""
        end = self.streams[0].end
        return None if end is None else int(end)

    def stillborn(self):
        """Whether the emulated kernel died before the command began: by QEMU's emulation, unless it happens each time."""
        return self.accel == "tcg" and self.console.fatal is not None and not self.console.begun

    def report(self):
        """Says what went wrong, if anything. Returns the exit status for vm/run."""
        console, status = self.console, self.status()
        if console.emulator_flaw and (console.fatal is not None or console.complaint is not None or self.late):
            say("the guest died of a fault of QEMU's emulation: run it again (with -v the console is shown)")
            return EMULATOR
        if console.kernel_flaw:
            say(f"note: not counted: a flaw of this kernel, fixed by 7e0ffb72de8a: {console.kernel_flaw}")
        if console.emulator_flaw:
            say(f"note: not counted: QEMU computed wrong CPU flags: {console.emulator_flaw}")
        so = "the command had not ended" if status is None else f"the command had ended with {status}"
        if console.fatal is not None:
            say(f"guest kernel panic or oops ({so}):")
            console.show(console.fatal - 8, 80)
            return PANIC
        if console.complaint is not None:
            say(f"guest kernel warning ({so}):")
            console.show(console.complaint - 3, 60)
            return WARNING
        if self.late:
            say(f"time-out: {self.late}; the end of the console:")
            console.show(len(console.lines) - 30, 30)
            return TIMEOUT
        if status is None:
            why = f": {self.qemu_says}" if self.qemu_says else ""
            say(f"QEMU ended before the command did{why}{'; the end of the console:' if console.lines else ''}")
            console.show(len(console.lines) - 30, 30)
            return DIED
        return status


def choose_accel(wish, kernel, machine):
    """KVM if a stock kernel boots with it, else TCG. That /dev/kvm opens proves nothing, so one boot is tried and remembered."""
    if not shutil.which(machine.QEMU):
        raise Error(f"{machine.QEMU} is not installed: run {machine.userland.SETUP}")
    if machine.icount is not None and wish == "kvm":
        raise Error("--icount counts instructions under emulation: it cannot go with --accel kvm")
    may = machine.may_use_kvm and machine.icount is None
    if not may or wish == "tcg" or (wish == "auto" and not os.access("/dev/kvm", os.R_OK | os.W_OK)):
        return "tcg"
    version = subprocess.run([machine.QEMU, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    key = f"{version}, {os.uname().release}, boot {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    memory = CACHE / "accel.json"
    try:
        known = json.loads(memory.read_text()).get(key)
    except (FileNotFoundError, ValueError):
        known = None
    if known is None:
        say(f"trying KVM, up to {PROBE_SECONDS} s ...")
        probe = Guest(kernel, Amd64(1, 1, 1, 1, "1G"), "kvm", ["true"], {}, PROBE_SECONDS)
        with open(os.devnull, "wb") as nowhere:
            probe.boot(nowhere, nowhere)
        known = probe.status() == 0
        with replacing(memory) as file:
            file.write(json.dumps({key: known}).encode())
        say("KVM works" if known else "KVM does not work here: emulating (TCG)")
    if wish == "kvm" and not known:
        raise Error(f"--accel kvm: a stock kernel does not boot with KVM here (verdict kept in {memory})")
    return "kvm" if known else "tcg"
