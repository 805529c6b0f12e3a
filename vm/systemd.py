# SPDX-License-Identifier: GPL-2.0-only
"""systemd for guests that have it as their first process, and a bus: Debian's, unpacked in the cache like arm64's programs."""
import re

from cache import CACHE
from sysroot import unpacked

# What systemd, its journal and systemctl need to boot to a multi-user target without devices, users or a bus.
PACKAGES = ("systemd libsystemd-shared libsystemd0 libc6 libgcc-s1 libacl1 libapparmor1 libaudit1 libblkid1 libcap-ng0 libcap2 "
            "libcrypt1 libkmod2 liblzma5 libmount1 libpam0g libpcre2-8-0 libseccomp2 libselinux1 libssl3t64 libzstd1 zlib1g "
            "libelf1t64")
# Left out, for each file and unit costs an emulated guest time: what is not run, and all that is started by itself but the journal.
UNNEEDED = re.compile(r"(usr/share(?!/dbus-1/system\.d/)|usr/lib/(udev|systemd/(boot|system-generators))|lib|packages)(/|$)"
                      r"|.*\.wants/(?!.*journald)")
# What D-Bus and polkit need in addition. Of what packages share they have their configuration.
BUS_PACKAGES = ("dbus dbus-daemon dbus-system-bus-common libdbus-1-3 libexpat1 polkitd libpolkit-gobject-1-0 "
                "libpolkit-agent-1-0 libglib2.0-0t64 libduktape207 libffi8 libatomic1")
BUS_UNNEEDED = re.compile(r"(usr/share/(?!(dbus|polkit)-1(/|$))|etc/init.d|lib|packages)(/|$)|.*\.wants/")
# Else it is the first boot, on which the user is asked for a time zone.
MACHINE_ID = "6d6167706965000000000000766d0001\n"


def files(with_bus):
    """All that the guest gets, by path."""
    yield from needed(unpacked(CACHE / "systemd-amd64", "amd64", PACKAGES), UNNEEDED)
    if with_bus:
        yield from needed(unpacked(CACHE / "bus-amd64", "amd64", BUS_PACKAGES), BUS_UNNEEDED)


def needed(root, unneeded):
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not unneeded.match(name):
            yield name, path
