# SPDX-License-Identifier: GPL-2.0-only
"""D-Bus and polkit for guests with systemd: Debian's, unpacked in the cache like arm64's programs."""
import re

from cache import CACHE
from sysroot import files_of, unpacked

PACKAGES = ("dbus dbus-daemon dbus-system-bus-common libdbus-1-3 libexpat1 polkitd libpolkit-gobject-1-0 "
            "libpolkit-agent-1-0 libglib2.0-0t64 libduktape207 libffi8 libatomic1")
# Of what packages share they need their configuration.
UNNEEDED = re.compile(r"(usr/share/(?!(dbus|polkit)-1(/|$))|etc/init.d|lib|packages)(/|$)|.*\.wants/")
TEXTS = {}


def files():
    """All that the guest gets, by path."""
    return files_of(unpacked(CACHE / "bus-amd64", "amd64", PACKAGES), UNNEEDED)
