#!/bin/sh
# Builds helm from its source with the machine's Go, into .tools/bin: tests hold the embedded API against it.
set -eu

# The last minor version whose client-go is that of Kubernetes 1.32, which the embedded API offers. Not helm 4: that says
# things in other words than the tests expect.
HELM_VERSION=v3.17.3

cd "$(dirname "$0")/.."
if ! command -v go >/dev/null; then
    echo "tarragon: helm is built from source, and there is no go on PATH (1.23 or newer)" >&2
    exit 1
fi
GOBIN=$(pwd -P)/.tools/bin go install -trimpath -ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=$HELM_VERSION" "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
.tools/bin/helm version --short
