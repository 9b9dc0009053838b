"""The rsh agent of a launcher before v2beta1: mpirun calls it to start its daemon in a worker."""

from __future__ import annotations

import shlex

from tarragon.frameworks.mpi.options import MpiOptions

KUBECTL_PATH = "/opt/kube"
"""Where the init container of the launcher puts kubectl."""


def kubexec_script(options: MpiOptions) -> str:
    """The rsh agent of a launcher: `kubexec.sh [ssh options] HOST COMMAND…`, where the host is a pod's name."""
    container = f"--container {shlex.quote(options.main_container)} " if options.main_container else ""
    return f"""#!/bin/sh
# mpirun calls this to start its daemon on a worker. It needs nothing of the image but a shell.
while :; do
  case "$1" in
    -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host=$1
shift
if [ -n "$TARRAGON_RSH" ]; then
  exec "$TARRAGON_RSH" {container}"$host" "$@"
fi
exec {KUBECTL_PATH}/kubectl exec "$host" {container}-- /bin/sh -c "$*"
"""
