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

    def __init__(self, cpus, llcs, nodes, smt, mem, icount=None, turn=None, append="",
                 no_l3=False, spare=0, memory_on=0, empty_node=False):
        super().__init__(mem, icount, turn, append)
        for name, value in (("cpus", cpus), ("llcs", llcs), ("nodes", nodes), ("smt", smt)):
            if value < 1:
                raise Error(f"--{name} {value}: at least 1")
        if llcs % nodes and nodes % llcs:
            raise Error(f"--llcs {llcs} is not a multiple of --nodes {nodes}, nor a divisor: each node has as many LLCs, or "
                        "each LLC as many nodes")
        if cpus % (max(llcs, nodes) * smt):
            raise Error(f"--cpus {cpus} is not a multiple of --llcs {llcs} (--nodes {nodes}) x --smt {smt}: all LLCs and nodes "
                        "are alike, of whole cores")
        if not 0 <= spare < cpus or spare % smt:
            raise Error(f"--spare {spare}: whole cores, and fewer than --cpus {cpus}")
        if not 0 <= memory_on <= nodes:
            raise Error(f"--memory-on {memory_on}: at most --nodes {nodes}")
        self.cpus, self.llcs, self.nodes, self.smt = cpus, llcs, nodes, smt
        self.no_l3, self.spare, self.empty_node = no_l3, spare, empty_node
        self.cx16 = True  # vm/run takes it from the kernels that do without
        self.sockets = min(llcs, nodes)
        self.dies = llcs // self.sockets
        self.memory_on = memory_on or nodes
        # Only from Intel's CPUs does Linux take an LLC that is a part of a socket, or of several nodes.
        self.intel = llcs != nodes

    def kernel_arguments(self, accel):
        ours = "console=ttyS0 loglevel=5 panic=-1 oops=panic cryptomgr.notests"
        if accel == "tcg":
            # Emulated CPUs share the host's counter, but Linux does not trust those of several sockets to agree, and
            # takes the HPET, which costs microseconds to read and makes CPUs wait for each other.
            # On a busy host the timer check fails by chance ("MP-BIOS bug").
            ours += " tsc=reliable no_timer_check"
            if self.intel:
                # Linux mitigates Intel's flaws: five times slower here.
                ours += " mitigations=off"
        return f"{ours} {self.append}".strip()

    def arguments(self, accel):
        """A die has an L3: so dies are LLCs. A socket is a node, or several where they share an LLC."""
        cores = self.cpus // self.llcs // self.smt
        smp = (f"{self.cpus - self.spare},maxcpus={self.cpus},sockets={self.sockets},dies={self.dies},cores={cores},"
               f"threads={self.smt}")
        share = self.cpus // self.nodes
        nodes = [f",cpus={node * share}-{(node + 1) * share - 1}" for node in range(self.nodes)] + [""] * self.empty_node
        has_memory = [node < self.memory_on or not cpus for node, cpus in enumerate(nodes)]
        node_mem = self.mem // sum(has_memory)
        arguments = ["-machine", "q35", "-m", f"{node_mem * sum(has_memory)}M", "-smp", smp]
        for node, cpus in enumerate(nodes):
            if has_memory[node]:
                arguments += ["-object", f"memory-backend-ram,id=m{node},size={node_mem}M"]
                cpus = f",memdev=m{node}{cpus}"
            arguments += ["-numa", f"node,nodeid={node}{cpus}"]
        l3 = f"l3-cache={'off' if self.no_l3 else 'on'}"
        if accel == "kvm":
            return arguments + ["-accel", "kvm", "-cpu", f"host,{l3}"]
        # With a thread for each vCPU guest kernels die at random, in text patching. CPUID's leaf 0x1f says what a die is:
        # QEMU 10 ends by an assertion when it is read. Which CPUs share an L3 is in leaf 4.
        # QEMU 7.2 computes wrong flags at cmpxchg16b, which the kernel's slab allocator uses where the CPU has it (cx16).
        cpu = f"max,{'' if self.cx16 else '-cx16,'}{l3},level=0x1d" + (",vendor=GenuineIntel" if self.intel else "")
        arguments += ["-accel", "tcg,thread=single", "-cpu", cpu]
        return arguments + self.clock()


class Arm64(Machine):
    """Two classes of CPUs, the little ones first, as on most boards. No NUMA, no SMT, always emulated."""
    QEMU, userland, may_use_kvm = "qemu-system-aarch64", sysroot, False

    def __init__(self, big, little, llcs, clusters, mem, icount=None, turn=None, append="", parallel=False):
        super().__init__(mem, icount, turn, append)
        if parallel and icount is not None:
            raise Error("--parallel: with --icount CPUs take turns")
        self.thread = "multi" if parallel else "single"
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
        arguments += ["-accel", f"tcg,thread={self.thread}", "-cpu", "max,pauth-impdef=on"]
        if self.dtb is None:
            self.dtb = os.memfd_create("dtb")
            tree = devicetree.build([self.QEMU, "-nodefaults", "-no-user-config", "-display", "none", *arguments],
                                    self.capacities, self.llc_of, self.cluster_of)
            with open(self.dtb, "wb", closefd=False) as file:
                file.write(tree)
        return arguments + ["-dtb", f"/proc/{os.getpid()}/fd/{self.dtb}"] + self.clock()
