"""The variables by which mpirun finds its hosts, and the agent that starts its daemons there.

The operators set only those of the implementation that the manifest names. The image may have another: `mpirun` would
find no hosts then, start all ranks in the launcher and succeed. So the others get theirs, unless the user sets them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.mpi.objects.host_files import host_file_name
from tarragon.frameworks.mpi.objects.names import CONFIG_PATH, KUBEXEC
from tarragon.frameworks.mpi.options import Implementation, MpiOptions, Transport

_AGENT = f"{CONFIG_PATH}/{KUBEXEC}"
_SSH_ATTEMPTS = "-o ConnectionAttempts=10"
"""The launcher may start before sshd runs on all workers."""


def variables_of_named(options: MpiOptions) -> Mapping[str, str]:
    """The variables of the implementation that the manifest names: those of the original operators."""
    return _variables(options.implementation, options)


def variables_of_others(options: MpiOptions) -> Mapping[str, str]:
    """The variables of all implementations that the manifest does not name."""
    others = (each for each in Implementation if each is not options.implementation)
    return {name: value for each in others for name, value in _variables(each, options).items()}


def _variables(installed: Implementation, options: MpiOptions) -> Mapping[str, str]:
    hosts = f"{CONFIG_PATH}/{host_file_name(options.implementation, installed.host_file_format)}"
    match options.transport:
        case Transport.EXEC:
            return _for_exec(installed, hosts, str(options.slots))
        case Transport.SSH:
            return _for_ssh(installed, hosts, str(options.slots))


def _for_exec(installed: Implementation, hosts: str, slots: str) -> Mapping[str, str]:
    match installed:
        case Implementation.OPEN_MPI:
            return {
                "OMPI_MCA_plm_rsh_agent": _AGENT,
                "OMPI_MCA_orte_default_hostfile": hosts,
                # Open MPI 5 reads the variables of its runtime PRRTE, which the operators do not set.
                "PRTE_MCA_plm_ssh_agent": _AGENT,
                "PRTE_MCA_prte_default_hostfile": hosts,
            }
        case Implementation.INTEL:
            return {
                "I_MPI_HYDRA_BOOTSTRAP": "rsh",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC": _AGENT,
                "I_MPI_HYDRA_HOST_FILE": hosts,
                "I_MPI_PERHOST": slots,
            }
        case Implementation.MPICH:
            return {"HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": _AGENT, "HYDRA_HOST_FILE": hosts}


def _for_ssh(installed: Implementation, hosts: str, slots: str) -> Mapping[str, str]:
    match installed:
        case Implementation.OPEN_MPI:
            return {
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "OMPI_MCA_orte_default_hostfile": hosts,
                "OMPI_MCA_plm_rsh_args": _SSH_ATTEMPTS,
                "OMPI_MCA_orte_set_default_slots": slots,
                "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
                "PRTE_MCA_prte_default_hostfile": hosts,
                "PRTE_MCA_plm_ssh_args": _SSH_ATTEMPTS,
            }
        case Implementation.INTEL:
            return {
                "I_MPI_HYDRA_HOST_FILE": hosts,
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _SSH_ATTEMPTS,
                "I_MPI_PERHOST": slots,
            }
        case Implementation.MPICH:
            return {"HYDRA_HOST_FILE": hosts, "HYDRA_LAUNCH_EXTRA_ARGS": _SSH_ATTEMPTS}
