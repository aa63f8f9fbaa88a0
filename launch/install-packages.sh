#!/bin/sh
# Installs every Debian 12 package the build, the pipeline and the tests need. Does nothing when all
# are there; asks for root through sudo only when it must install.
set -eu

packages="
  g++ cmake ninja-build ccache pkg-config git ca-certificates util-linux
  libzmq3-dev cppzmq-dev capnproto libcapnp-dev
  libspdlog-dev libfmt-dev libexpected-dev libcli11-dev nlohmann-json3-dev libsimdjson-dev
  libtomlplusplus-dev liburing-dev libxxhash-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  supervisor python3 python3-numpy python3-pytest python3-zmq
"

missing=""
for package in $packages; do
  if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
    missing="$missing $package"
  fi
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-packages: needs root or sudo for:$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "install-packages: installing$missing"
# Debian's package scripts would start a system-wide supervisord; the pipeline brings its own.
$as_root env DEBIAN_FRONTEND=noninteractive sh -c '
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "$@" >/dev/null' sh $missing
