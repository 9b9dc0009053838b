#!/bin/sh
# Builds helm from source with the installed Go, into .tools/bin: `install_helm.sh 3` as helm, `install_helm.sh 4` as helm-4.
set -eu

case "${1:-3}" in
# The last minor version with the client-go of Kubernetes 1.32, which many users have; tests of the embedded API expect
# its messages.
3) version=v3.17.3 program=helm ;;
4) version=v4.3.1 program=helm-4 ;;
*)
    echo "tarragon: install_helm.sh builds helm 3 or 4, not $1" >&2
    exit 2
    ;;
esac
module=helm.sh/helm/${version%%.*}

cd "$(dirname "$0")/.."
if ! command -v go >/dev/null; then
    echo "tarragon: helm is built from source, and there is no go on PATH (1.23 or newer; 1.26 for helm 4)" >&2
    exit 1
fi
mkdir -p .tools/bin
folder=$(mktemp -d .tools/helm.XXXXXX)
trap 'rm -rf "$folder"' EXIT
GOBIN=$(pwd -P)/$folder go install -trimpath -ldflags="-s -w -X $module/internal/version.version=$version" "$module/cmd/helm@$version"
mv "$folder/helm" ".tools/bin/$program"
".tools/bin/$program" version --short
