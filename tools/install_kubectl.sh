#!/bin/sh
# Builds a recent kubectl from source with the installed Go, as .tools/bin/kubectl-1.36, and a client with informers of the
# same client-go, as .tools/bin/informer. Tests run both against the embedded API. Their module file is in tools/kubectl.
set -eu

VERSION=1.36.0

cd "$(dirname "$0")/kubectl"
if ! command -v go >/dev/null; then
    echo "tarragon: kubectl $VERSION is built from source, and there is no go on PATH (1.26 or newer)" >&2
    exit 1
fi
package=k8s.io/component-base/version
go build -trimpath -o ../../.tools/bin/kubectl-1.36 \
    -ldflags="-s -w -X $package.gitVersion=v$VERSION -X $package.gitMajor=1 -X $package.gitMinor=36" .
go build -trimpath -ldflags="-s -w" -o ../../.tools/bin/informer ./informer
../../.tools/bin/kubectl-1.36 version --client
