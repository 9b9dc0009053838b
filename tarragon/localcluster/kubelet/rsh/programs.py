"""The programs of the node that containers find on their PATH, and the variables that MPI needs on a shared machine.

The rsh agent is there under the name of `ssh`, too: Open MPI, MPICH and Intel MPI look for that on PATH if they are not
told of another agent, so that it needs no variables.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base.bytecode import compile_program
from tarragon.localcluster.kubelet.base.files import write_bytes
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.rsh import agent

AGENT_VARIABLE = "TARRAGON_RSH"
AGENT_NAMES = ("tarragon-rsh", "ssh")


class NodePrograms:
    """Installs the programs of a node."""

    def __init__(self, folder: NodeFolder) -> None:
        self._folder = folder
        self._agent = folder.rsh / "agent.pyc"

    def compile(self) -> None:
        """Compile the agent into the node's folder. Raises OSError."""
        create_private_folder(self._folder.rsh)
        compile_program(Path(str(agent.__file__)), self._agent)

    def install(self, namespace: str) -> Path:
        """The folder of the programs for pods of a namespace, which is created at its first use. Raises OSError."""
        folder = self._folder.rsh / namespace
        create_private_folder(folder)
        for name in AGENT_NAMES:
            program = folder / name
            words = [sys.executable, "-I", "-S", self._agent, self._folder.hosts, namespace, program]
            # A script, as the line of an interpreter can neither have two options nor a path with spaces.
            script = f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n'.encode()
            if not program.exists() or program.read_bytes() != script:
                write_bytes(program, script)
            program.chmod(0o700)  # Always: an earlier kubelet may have been killed after the write.
        return folder


def with_programs(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables of a container, with the folder of the node's programs first on PATH."""
    path = os.pathsep.join(filter(None, [str(folder), variables.get("PATH", "")]))
    return {**variables, "PATH": path, AGENT_VARIABLE: str(folder / AGENT_NAMES[0])}


_SHARED_MACHINE: Mapping[str, str] = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",  # Open MPI 4
    "PRTE_MCA_hwloc_default_binding_policy": "none",  # Open MPI 5
    "I_MPI_PIN": "0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
"""Defaults for ranks of several pods on one machine.

Every daemon would bind its first rank to the first core, and waiting ranks would take the core from computing ones: 300
barriers of four ranks of Open MPI on two cores take 4.6 s as it is, and 0.6 s with these.
"""
_ROOT: Mapping[str, str] = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Open MPI must not refuse to run as root, who may run the node, while the image has a user for it."""
_MPI_VARIABLE = re.compile(r"(OMPI|PRTE|HYDRA|I_MPI|MPICH|MPIR)_")
_MPI_PROGRAM = re.compile(r"\b(mpirun|mpiexec|orterun|prterun|horovodrun)\b")


def mpi_variables(declared: Mapping[str, str], argv: Sequence[str], user: int, run: Path) -> dict[str, str]:
    """Defaults for a container whose variables or command show that it starts an MPI program.

    `user` is its UID, and `run` the folder of its run. Open MPI 5 names the folders of its sessions after process IDs,
    and does not start where a killed process with the same ID has left one: each run has a place of its own for them.
    mpirun tells its daemons in other pods.
    """
    if not any(map(_MPI_VARIABLE.match, declared)) and not any(map(_MPI_PROGRAM.search, argv)):
        return {}
    return {**_SHARED_MACHINE, "PRTE_MCA_prte_tmpdir_base": str(run), **(_ROOT if user == 0 else {})}


_FOREGROUND = re.compile(r"-[46deiqt]*D")
_SLEEPER = """\
trap 'kill $! 2>/dev/null; exit 0' TERM
sleep 2147483647 &
wait
"""


def without_sshd(argv: Sequence[str]) -> list[str]:
    """The command of a container, with a sleeper in the place of an sshd in the foreground.

    A pod that wants a real sshd calls it in a shell: `[/bin/sh, -c, exec /usr/sbin/sshd -De]`.
    """
    is_sshd = bool(argv) and Path(argv[0]).name == "sshd" and any(map(_FOREGROUND.match, argv[1:]))
    return ["/bin/sh", "-c", _SLEEPER] if is_sshd else list(argv)
