# SPDX-License-Identifier: GPL-2.0-only
"""What guests look like: for each architecture QEMU's arguments, and the kernel's."""
import os
import re

import devicetree
import host
import sysroot
from cache import Error


class Machine:
    """What both have. Clusters, LLCs and the like are the heirs'."""

    def __init__(self, mem, icount, turn, append):
        size = re.fullmatch(r"(\d+)([MG])", mem, re.I)
        if not size:
            raise Error(f"--mem {mem}: a number followed by M or G")
        if turn is not None and (turn < 1 or icount is None):
            raise Error(f"--turn {turn}: at least 1, and only with --icount")
        self.mem = int(size[1]) * (1024 if size[2] in "gG" else 1)
        self.icount, self.turn, self.append = icount, turn, append

    def clock(self):
        arguments = []
        if self.icount is not None:
            arguments += ["-icount", f"shift={self.icount},sleep=off"]
        if self.turn is not None:
            # A timer of the guest's clock that is QEMU's own: a network filter that has nothing to filter.
            arguments += ["-netdev", "hubport,id=turns,hubid=0",
                          "-object", f"filter-buffer,id=turn,netdev=turns,interval={self.turn}"]
        return arguments


class Amd64(Machine):
    QEMU, userland, may_use_kvm = "qemu-system-x86_64", host, True

    def __init__(self, cpus, llcs, nodes, smt, mem, icount=None, turn=None, append=""):
        super().__init__(mem, icount, turn, append)
        for name, value in (("cpus", cpus), ("llcs", llcs), ("nodes", nodes), ("smt", smt)):
            if value < 1:
                raise Error(f"--{name} {value}: at least 1")
        if llcs % nodes:
            raise Error(f"--llcs {llcs} is not a multiple of --nodes {nodes}: each node has the same number of LLCs")
        if cpus % (llcs * smt):
            raise Error(f"--cpus {cpus} is not a multiple of --llcs {llcs} x --smt {smt}: all LLCs are alike, of whole cores")
        self.cpus, self.llcs, self.nodes, self.smt = cpus, llcs, nodes, smt
        self.dies = llcs // nodes

    def kernel_arguments(self, accel):
        ours = "console=ttyS0 loglevel=5 panic=-1 oops=panic cryptomgr.notests"
        if accel == "tcg":
            # Emulated CPUs share the host's counter, but Linux does not trust those of several sockets to agree, and
            # takes the HPET, which costs microseconds to read and makes CPUs wait for each other.
            # On a busy host the timer check fails by chance ("MP-BIOS bug").
            ours += " tsc=reliable no_timer_check"
            if self.dies > 1:
                # Linux reads dies only from Intel's CPUs, and then mitigates Intel's flaws: five times slower here.
                ours += " mitigations=off"
        return f"{ours} {self.append}".strip()

    def arguments(self, accel):
        """A socket is a node, a die has an L3: so dies are LLCs."""
        node_mem = self.mem // self.nodes
        smp = f"{self.cpus},sockets={self.nodes},dies={self.dies},cores={self.cpus // self.llcs // self.smt}"
        arguments = ["-machine", "q35", "-m", f"{node_mem * self.nodes}M", "-smp", f"{smp},threads={self.smt}"]
        share = self.cpus // self.nodes
        for node in range(self.nodes):
            arguments += ["-object", f"memory-backend-ram,id=m{node},size={node_mem}M",
                          "-numa", f"node,nodeid={node},memdev=m{node},cpus={node * share}-{(node + 1) * share - 1}"]
        if accel == "kvm":
            return arguments + ["-accel", "kvm", "-cpu", "host,l3-cache=on"]
        # With a thread for each vCPU guest kernels die at random, in text patching.
        arguments += ["-accel", "tcg,thread=single", "-cpu", f"max,l3-cache=on{',vendor=GenuineIntel' if self.dies > 1 else ''}"]
        return arguments + self.clock()


class Arm64(Machine):
    """Two classes of CPUs, the little ones first, as on most boards. No NUMA, no SMT, always emulated."""
    QEMU, userland, may_use_kvm = "qemu-system-aarch64", sysroot, False

    def __init__(self, big, little, llcs, clusters, mem, icount=None, turn=None, append=""):
        super().__init__(mem, icount, turn, append)
        if big < 0 or little < 0 or big + little < 1:
            raise Error(f"--big {big} --little {little}: at least one CPU")
        for name, value in (("llcs", llcs), ("clusters", clusters)):
            if value not in (1, 2) or (value == 2 and not (big and little)):
                raise Error(f"--{name} {value}: on arm64 it is 1, or 2: one for the little CPUs and one for the big ones")
        self.capacities = [devicetree.LITTLE] * little + [devicetree.BIG] * big
        self.llc_of, self.cluster_of = ([int(several == 2 and cpu >= little) for cpu in range(big + little)]
                                        for several in (llcs, clusters))
        self.dtb = None

    def kernel_arguments(self, accel):
        return f"console=ttyAMA0 loglevel=5 panic=-1 oops=panic cryptomgr.notests {self.append}".strip()

    def arguments(self, accel):
        cpus = len(self.capacities)
        arguments = ["-machine", "virt,gic-version=3", "-m", f"{self.mem}M", "-smp", f"{cpus},sockets=1,cores={cpus},threads=1"]
        # With the architecture's own cipher for signed pointers, in place of one of QEMU's, all is three times as slow.
        arguments += ["-accel", "tcg,thread=single", "-cpu", "max,pauth-impdef=on"]
        if self.dtb is None:
            self.dtb = os.memfd_create("dtb")
            tree = devicetree.build([self.QEMU, "-nodefaults", "-no-user-config", "-display", "none", *arguments],
                                    self.capacities, self.llc_of, self.cluster_of)
            with open(self.dtb, "wb", closefd=False) as file:
                file.write(tree)
        return arguments + ["-dtb", f"/proc/{os.getpid()}/fd/{self.dtb}"] + self.clock()
