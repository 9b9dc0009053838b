#!/bin/sh
# Builds a control plane of today's Kubernetes from source with the installed Go, as .tools/kubernetes-1.37: etcd,
# kube-apiserver, kube-controller-manager and kube-scheduler. Tests marked `real` run on it. Their module file is in
# tools/kubernetes. It takes some twenty minutes of two cores and 5 GB for the caches of Go.
set -eu

VERSION=1.37.2

cd "$(dirname "$0")/kubernetes"
if ! command -v go >/dev/null; then
    echo "tarragon: the control plane $VERSION is built from source, and there is no go on PATH (1.26 or newer);" \
        "or set KUBEBUILDER_ASSETS to a folder with its programs" >&2
    exit 1
fi
folder=../../.tools/kubernetes-1.37
unfinished=$folder.unfinished
mkdir -p "$unfinished"
package=k8s.io/component-base/version
for program in \
    go.etcd.io/etcd/server/v3 \
    k8s.io/kubernetes/cmd/kube-apiserver \
    k8s.io/kubernetes/cmd/kube-controller-manager \
    k8s.io/kubernetes/cmd/kube-scheduler; do
    case $program in go.etcd.io/*) name=etcd ;; *) name=${program##*/} ;; esac
    # Without a version of its own the API server calls itself v0.0.0, and clients read features from that.
    CGO_ENABLED=0 go build -trimpath -o "$unfinished/$name" \
        -ldflags="-s -w -X $package.gitVersion=v$VERSION -X $package.gitMajor=1 -X $package.gitMinor=37" "$program"
done
# In one step, so that nobody starts a control plane without its scheduler.
rm -rf "$folder"
mv "$unfinished" "$folder"
"$folder/kube-apiserver" --version
