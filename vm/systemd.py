# SPDX-License-Identifier: GPL-2.0-only
"""systemd for guests that have it as their first process: Debian's, unpacked in the cache like arm64's programs."""
import re

from cache import CACHE
from sysroot import files_of, unpacked

# What systemd, its journal and systemctl need to boot to a multi-user target without devices, users or a bus.
PACKAGES = ("systemd libsystemd-shared libsystemd0 libc6 libgcc-s1 libacl1 libapparmor1 libaudit1 libblkid1 libcap-ng0 libcap2 "
            "libcrypt1 libkmod2 liblzma5 libmount1 libpam0g libpcre2-8-0 libseccomp2 libselinux1 libssl3t64 libzstd1 zlib1g "
            "libelf1t64")
# Left out, for each file and unit costs an emulated guest time: what is not run, and all that is started by itself but the journal.
UNNEEDED = re.compile(r"(usr/share(?!/dbus-1/system\.d/)|usr/lib/(udev|systemd/(boot|system-generators))|lib|packages)(/|$)"
                      r"|.*\.wants/(?!.*journald)")
# Else it is the first boot, on which the user is asked for a time zone.
TEXTS = {"etc/machine-id": "6d6167706965000000000000766d0001\n"}


def files():
    """All that the guest gets, by path."""
    return files_of(unpacked(CACHE / "systemd-amd64", "amd64", PACKAGES), UNNEEDED)
