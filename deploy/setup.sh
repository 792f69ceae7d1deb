#!/usr/bin/env bash
# Installs the Debian packages that are missing: `deploy/setup.sh GROUP...`, for example
# `deploy/setup.sh build test`; deploy/packages.txt has the groups. Returns at once when
# nothing is missing; otherwise takes root or sudo.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/build/tools
lists_are_fresh=

fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# The packages of one group, one per line.
packages_of() {
  local group package rest
  while read -r group package rest; do
    if [[ $group == "$1" ]]; then echo "$package"; fi
  done <"$root/deploy/packages.txt"
}

is_installed() {
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Runs a command as root: directly, or through sudo, which asks for a password only on a terminal.
as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif [[ -t 0 ]]; then
    sudo "$@"
  else
    sudo --non-interactive "$@"
  fi
}

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" >&2
}

refresh_lists() {
  if [[ -n $lists_are_fresh ]]; then return; fi
  apt update ||
    fail "'apt-get update' failed (its message is above): check the network and the mirrors in
  /etc/apt"
  lists_are_fresh=yes
}

system_name() {
  sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release
}

install_packages() {
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    fail "these Debian packages are missing, and installing them takes root or sudo, of which there
  is neither. Run this again as root, or ask whoever administers this machine for
    apt-get install --no-install-recommends $*"
  fi
  echo "setup: installing $# Debian packages: $*" >&2
  refresh_lists
  apt install --yes --no-install-recommends "$@" ||
    fail "'apt-get install' failed (its message is above): check the network and the mirrors in
  /etc/apt. The packages are those of Debian 12; this is $(system_name)."
}

# Unpacks a package under build/tools without installing it.
extract_package() {
  local package=$1 downloads
  if [[ -e $tools/.$package ]] || command -v "$package" >/dev/null; then return; fi
  echo "setup: unpacking the Debian package $package under build/tools" >&2
  downloads=$(mktemp -d)
  refresh_lists
  (cd "$downloads" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) || fail "cannot download $package"
  mkdir -p "$tools"
  dpkg-deb --extract "$downloads"/*.deb "$tools" || fail "cannot unpack $package"
  rm -rf "$downloads"
  touch "$tools/.$package"
}

main() {
  local group package missing=()
  if (($# == 0)); then
    sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
    exit 2
  fi
  for group in "$@"; do
    [[ -n $(packages_of "$group") ]] || fail "there is no group '$group' in deploy/packages.txt"
  done
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "no apt-get here: this script knows Debian 12. Elsewhere install what deploy/packages.txt
  lists by hand, then build with: cmake -S . -B build -G Ninja && ninja -C build"
  fi
  for group in "$@"; do
    for package in $(packages_of "$group"); do
      is_installed "$package" || missing+=("$package")
    done
  done
  if ((${#missing[@]} > 0)); then install_packages "${missing[@]}"; fi
  for group in "$@"; do
    if [[ $group != test ]]; then continue; fi
    for package in $(packages_of extract); do extract_package "$package"; done
  done
}

main "$@"
