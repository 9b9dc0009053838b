#!/bin/sh
# Takes promtool out of Debian's package of Prometheus, into .tools/bin: the package itself would start a server. Tests
# of the alerts run it.
set -eu

cd "$(dirname "$0")/.."
if ! command -v apt-get >/dev/null; then
    echo "tarragon: promtool comes from Debian's package prometheus, and there is no apt-get; any on PATH will do" >&2
    exit 1
fi
bin=$(pwd -P)/.tools/bin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq update
apt-get -qq download prometheus
dpkg -x prometheus_*.deb unpacked
cp unpacked/usr/bin/promtool "$bin"
"$bin/promtool" --version
