#!/bin/sh
# Builds a recent kubectl from source with the installed Go, as .tools/bin/kubectl-1.36, and a client with informers of the
# same client-go, as .tools/bin/informer. Tests run both against the embedded API. Their module file is in tools/kubectl.
# Usage: tools/install_kubectl.sh                       both, for this machine
#        tools/install_kubectl.sh ARCHITECTURE FILE     only kubectl, for such a machine: the image has it
set -eu

VERSION=1.36.0

cd "$(dirname "$0")/kubectl"
if ! command -v go >/dev/null; then
    echo "tarragon: kubectl $VERSION is built from source, and there is no go on PATH (1.26 or newer)" >&2
    exit 1
fi
# Static, since it is copied into images with another C library or none; and the same for everybody with the same Go.
export CGO_ENABLED=0
build_kubectl() {
    package=k8s.io/component-base/version
    go build -trimpath -buildvcs=false -o "$1" -ldflags="-s -w -buildid= \
        -X $package.gitVersion=v$VERSION -X $package.gitMajor=1 -X $package.gitMinor=36" .
}

if [ $# -eq 2 ]; then
    GOARCH=$1
    export GOARCH
    build_kubectl "$2"
    exit
fi
build_kubectl ../../.tools/bin/kubectl-1.36
go build -trimpath -ldflags="-s -w" -o ../../.tools/bin/informer ./informer
../../.tools/bin/kubectl-1.36 version --client
