# SPDX-License-Identifier: GPL-2.0-only
"""podman for guests that run pods: Debian's, unpacked in the cache like arm64's programs.

Debian's cloud kernels have overlayfs, bridges and firewalls in modules, which guests do not have: storage is copied, and a
pod has the network of nobody, or the machine's. The root is an initramfs, which cannot be pivoted away.
"""
import re

from cache import CACHE
from sysroot import files_of, unpacked

PACKAGES = ("podman conmon crun netavark catatonit golang-github-containers-common golang-github-containers-image "
            "libc6 libgcc-s1 libgpgme11t64 libgpg-error0 libassuan9 libseccomp2 libsqlite3-0 libsubid5 libsemanage2 libsepol2 libbz2-1.0 libcap2 libsystemd0 libyajl2 "
            "libglib2.0-0t64 libpcre2-8-0 libselinux1 libaudit1 libcap-ng0 libacl1 libattr1 libbsd0 libmd0 libcrypt1 libpam0g "
            "zlib1g libelf1t64 libzstd1 libffi8 libatomic1")
UNNEEDED = re.compile(r"(lib|packages|usr/share/(?!containers)[^/]+|usr/lib/systemd|usr/lib/podman/netavark-.*"
                      r"|usr/libexec/podman/(podman-testing|quadlet|rootlessport)|etc/cni)(/|$)")
TEXTS = {
    "etc/containers/storage.conf":
        '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n',
    "etc/containers/containers.conf":
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nno_pivot_root = true\n'
        '[containers]\nlog_driver = "k8s-file"\n',
}


def files():
    """All that the guest gets, by path."""
    return files_of(unpacked(CACHE / "podman-amd64", "amd64", PACKAGES), UNNEEDED)
