#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In a Debian without systemd: tests/packages/run carries it there. Installs each package of /in, looks what it does, removes it.
set -eu
version=$1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

fail() {
	echo "install: $*" >&2
	exit 1
}

left() {
	find / -xdev -name '*scx*magpie*' ! -path '/in/*' ! -path '/proc/*' ! -path '/var/log/*' ! -path '/var/cache/*'
}

# check WHAT INSTALL REMOVE: commands.
check() {
	$2 >/tmp/log 2>&1 || { cat /tmp/log >&2; fail "$1: $2"; }
	said=$(scx_magpie --version)
	case $said in "scx_magpie $version"*) ;; *) fail "$1: it says '$said'" ;; esac
	sed 's,zsh/site-functions,zsh/*,' /in/files | while read -r file; do
		# shellcheck disable=SC2086 # a pattern
		ls $file >/dev/null 2>&1 || ls "$file.gz" >/dev/null 2>&1 || fail "$1: no $file"
	done
	man -w 8 scx_magpie >/dev/null || fail "$1: no manual page"
	[ -z "$(find /etc -name '*scx*magpie*' ! -path '*/deb-systemd*')" ] || fail "$1: it is enabled, or has a file in /etc"
	$3 >/tmp/log 2>&1 || { cat /tmp/log >&2; fail "$1: $3"; }
	[ -z "$(left)" ] || fail "$1: left after it was removed: $(left)"
	echo "installed and removed: $1"
}

check magpie.deb "apt-get install -y --no-install-recommends /in/magpie.deb" "apt-get purge -y scx-magpie"
# What it needs remains from Debian's package: apt leaves it.
for package in /in/*.rpm; do
	[ ! -e "$package" ] || check "${package##*/}" "rpm -i --force-debian --nodeps $package" "rpm -e --force-debian scx_magpie"
done
# Without CheckSpace: there is no list of mounts here.
printf '[options]\nArchitecture = auto\n' >/in/pacman.conf
[ ! -e /in/magpie.pkg.tar ] ||
	check magpie.pkg.tar "pacman --config /in/pacman.conf -U -dd --noconfirm /in/magpie.pkg.tar" \
		"pacman --config /in/pacman.conf -Rdd --noconfirm scx_magpie"
