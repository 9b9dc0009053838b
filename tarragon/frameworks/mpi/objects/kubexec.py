"""The rsh agent of a launcher before v2beta1: mpirun calls it to start its daemon in a worker."""

from __future__ import annotations

import shlex

from tarragon.frameworks.mpi.objects.names import KUBEXEC
from tarragon.frameworks.mpi.options import MpiOptions

KUBECTL_PATH = "/opt/kube"
"""Where the init container of the launcher puts kubectl."""
_VALUE_OPTIONS = "BbcDEeFIiJLlmOoPpQRSWw"
"""The options of ssh that have a value, which may be a word of its own."""


def kubexec_script(options: MpiOptions) -> str:
    """The rsh agent of a launcher: `kubexec.sh [ssh options] HOST COMMAND…`, where the host is a pod's name."""
    container = f"--container {shlex.quote(options.main_container)} " if options.main_container else ""
    return f"""#!/bin/sh
# mpirun calls this to start its daemon on a worker. It needs nothing of the image but a shell.
while [ $# -gt 0 ]; do
  case "$1" in
    --) shift; break ;;
    -*[{_VALUE_OPTIONS}]?*) shift ;;
    -*[{_VALUE_OPTIONS}]) shift; [ $# -eq 0 ] || shift ;;
    -*) shift ;;
    *) break ;;
  esac
done
if [ -z "$1" ]; then
  echo "{KUBEXEC}: no host was named; usage: {KUBEXEC} [OPTIONS OF SSH] HOST COMMAND..." >&2
  exit 2
fi
host=$1
shift
if [ -n "$TARRAGON_RSH" ]; then
  exec "$TARRAGON_RSH" {container}"$host" "$@"
fi
exec {KUBECTL_PATH}/kubectl exec "$host" {container}-- /bin/sh -c "$*"
"""
