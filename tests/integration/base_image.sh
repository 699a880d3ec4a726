#!/bin/sh
# base_image.sh [SUITE [PACKAGES]]: makes a base image from Debian's packages where no image registry is reached, and prints
# its name. About a minute the first time; afterwards the image is found by its tag. Needs root, debootstrap and a Docker
# Engine.
set -eu
suite=${1:-bookworm}
packages=${2:-python3,ca-certificates}
tag=phantora-test-base:$suite-1
if ! docker image inspect "$tag" >/dev/null 2>&1; then
  command -v debootstrap >/dev/null || {
    echo "base_image.sh: wanted debootstrap; not found. Install it: apt-get install debootstrap" >&2
    exit 3
  }
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  debootstrap --variant=minbase --include="$packages" "$suite" "$folder/root" \
    "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$folder/log" 2>&1 || { tail -20 "$folder/log" >&2; exit 3; }
  tar -C "$folder/root" --exclude='./dev/*' --exclude='./var/cache/apt/archives/*.deb' -c . |
    docker import - "$tag" >/dev/null
fi
echo "$tag"
