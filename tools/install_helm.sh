#!/bin/sh
# Builds helm from source with the installed Go, into .tools/bin. Tests run it against the embedded API.
set -eu

# The last minor version with the client-go of Kubernetes 1.32, which the embedded API serves. Not helm 4, whose messages
# differ from those that the tests expect.
HELM_VERSION=v3.17.3

cd "$(dirname "$0")/.."
if ! command -v go >/dev/null; then
    echo "tarragon: helm is built from source, and there is no go on PATH (1.23 or newer)" >&2
    exit 1
fi
GOBIN=$(pwd -P)/.tools/bin go install -trimpath -ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=$HELM_VERSION" "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
.tools/bin/helm version --short
