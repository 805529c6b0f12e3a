# SPDX-License-Identifier: GPL-2.0-only
"""The device tree of an arm64 guest: QEMU's own, where the CPUs get capacities, caches and clusters.

	QEMU's tree --> dtc --> text, with our additions behind it --> dtc --> the tree to boot with
"""
import shutil
import subprocess
import tempfile
from pathlib import Path

from cache import Error

LITTLE, BIG = 430, 1024


def cache_node(label, level, size, above=None):
    """Without sizes and sets the kernel takes no notice of a cache."""
    after = f" next-level-cache = <&{above}>;" if above else ""
    return (f'/ {{ {label}: {label.replace("_", "-")} {{ compatible = "cache"; cache-level = <{level}>; cache-unified;'
            f" cache-size = <{size}>; cache-line-size = <64>; cache-sets = <{size // 64 // 16}>;{after} }}; }};")


def additions(capacities, llc_of, cluster_of):
    """In the order of the CPUs: the capacity of each, its LLC, its cluster."""
    text = ["/delete-node/ &{/cpus/cpu-map};"]
    for llc in sorted(set(llc_of)):
        text.append(cache_node(f"l3_{llc}", 3, 8 << 20))
    for cpu, (capacity, llc) in enumerate(zip(capacities, llc_of)):
        text.append(cache_node(f"l2_{cpu}", 2, 512 << 10, f"l3_{llc}"))
        text.append(f"&{{/cpus/cpu@{cpu}}} {{ capacity-dmips-mhz = <{capacity}>; next-level-cache = <&l2_{cpu}>; }};")
    # The kernel counts the cores of each cluster from zero, and that is what sysfs shows as core_id.
    clusters = {}
    for cpu, cluster in enumerate(cluster_of):
        cores = clusters.setdefault(cluster, [])
        cores.append(f"core{len(cores)} {{ cpu = <&{{/cpus/cpu@{cpu}}}>; }};")
    inner = " ".join(f"cluster{cluster} {{ {' '.join(cores)} }};" for cluster, cores in clusters.items())
    text.append(f"&{{/cpus}} {{ cpu-map {{ socket0 {{ {inner} }}; }}; }};")
    return "\n".join(text)


def checked(argv, **options):
    done = subprocess.run(argv, capture_output=True, **options)
    if done.returncode:
        raise Error(f"{argv[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def build(qemu, capacities, llc_of, cluster_of):
    """The tree in its binary form. `qemu` is QEMU's command line, of which only the CPUs, memory and machine matter."""
    if not shutil.which("dtc"):
        raise Error("dtc is not installed: run tools/setup arm64")
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "dtb"
        checked([*qemu, "-machine", f"dumpdtb={dump}"])
        source = checked(["dtc", "-q", "-I", "dtb", "-O", "dts", str(dump)])
    source += additions(capacities, llc_of, cluster_of).encode()
    return checked(["dtc", "-q", "-q", "-I", "dts", "-O", "dtb"], input=source)
