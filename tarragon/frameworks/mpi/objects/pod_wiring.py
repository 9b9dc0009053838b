"""What the pods of an MPIJob get so that mpirun finds its workers and starts its daemons on them.

Before v2beta1, mpirun calls `kubexec.sh`, which starts the daemon by the API server's exec; an init container brings
kubectl. Since then it calls ssh, with a key pair in all pods. On a node that runs processes, both reach an agent of
the node instead: it sets TARRAGON_RSH, and its `ssh` is first on the PATH.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tarragon.frameworks.mpi.fields import IDLE_COMMAND, LAUNCHER
from tarragon.frameworks.mpi.objects.names import config_name, pod_name, secret_name
from tarragon.frameworks.mpi.options import SSH_PATH, Implementation, MpiOptions, Transport, options_of
from tarragon.frameworks.plugin import DiscoveryConfig, GangSize
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.meta import JsonObject
from tarragon.kube.pod_validation import main_container

CONFIG_PATH = "/etc/mpi"
HOST_FILE, DISCOVERY_SCRIPT, KUBEXEC = "hostfile", "discover_hosts.sh", "kubexec.sh"
_HOST_FILE_PATH, _KUBEXEC_PATH = f"{CONFIG_PATH}/{HOST_FILE}", f"{CONFIG_PATH}/{KUBEXEC}"
KUBECTL_PATH = "/opt/kube"
KUBECTL_IN_IMAGE = "/usr/local/bin/kubectl"
"""Where the operator's image has kubectl."""
CONFIG_VOLUME, KUBECTL_VOLUME, SSH_VOLUME = "mpi-job-config", "mpi-job-kubectl", "ssh-auth"
SSHD = ("/usr/sbin/sshd", "-De")
SSH_ATTEMPTS = "-o ConnectionAttempts=10"
"""The launcher may start before sshd runs on all workers."""
DEFAULT_CLUSTER_DOMAIN = "cluster.local"
_SCRIPT_MODE, _FILE_MODE, _KEY_MODE = 0o555, 0o444, 0o600

_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
"""Without these, images of NVIDIA see all GPUs of the node, although the launcher requests none."""

_EXEC_ENV: Mapping[str, str] = MappingProxyType(
    {
        "OMPI_MCA_plm_rsh_agent": _KUBEXEC_PATH,
        "OMPI_MCA_orte_default_hostfile": _HOST_FILE_PATH,
        "PRTE_MCA_plm_ssh_agent": _KUBEXEC_PATH,
        "PRTE_MCA_prte_default_hostfile": _HOST_FILE_PATH,
    }
)
"""Open MPI 5 reads the variables of its runtime PRRTE, Open MPI up to 4 the others. The operators set only those."""
_EXEC_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": _KUBEXEC_PATH,
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": _KUBEXEC_PATH,
    }
)


def discovery_config(job: TrainingJob, _: GangSize, domain: str) -> Callable[[Replica], DiscoveryConfig | None]:
    """The wiring of all replicas. It does not depend on the size: the host file is a volume that follows it."""

    def config(replica: Replica) -> DiscoveryConfig:
        options = options_of(job)
        if options.transport is Transport.EXEC:
            return _exec_launcher(job, options) if replica.type == LAUNCHER else _exec_worker(job, replica)
        return _ssh(job, replica, domain)

    return config


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


def _exec_launcher(job: TrainingJob, options: MpiOptions) -> DiscoveryConfig:
    launcher = _container(job, Replica(LAUNCHER, 0))
    delivery = {
        "name": "kubectl-delivery",
        "command": ["/bin/sh", "-c", f'[ -n "$TARRAGON_RSH" ] || cp {KUBECTL_IN_IMAGE} {KUBECTL_PATH}/kubectl'],
        # As the launcher itself: the pod requests no more than the scheduler knows of, and a quota finds its limits.
        "resources": launcher.get("resources", {}),
        # Nor does it need another level of Pod Security. The image has a user of its own, who may write emptyDirs.
        **({"securityContext": launcher["securityContext"]} if launcher.get("securityContext") else {}),
        "volumeMounts": [{"name": KUBECTL_VOLUME, "mountPath": KUBECTL_PATH}],
    }
    return DiscoveryConfig(
        container=_first_container(job, Replica(LAUNCHER, 0)),
        env={**_EXEC_ENV, **({} if options.launcher_works else _NO_GPUS)},
        default_env=_EXEC_DEFAULTS,
        volume_mounts=[
            {"name": KUBECTL_VOLUME, "mountPath": KUBECTL_PATH},
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH},
        ],
        volumes=[
            {"name": KUBECTL_VOLUME, "emptyDir": {}},
            _config_volume(job, {KUBEXEC: _SCRIPT_MODE, HOST_FILE: _FILE_MODE, DISCOVERY_SCRIPT: _SCRIPT_MODE}),
        ],
        init_containers=[delivery],
        pod_fields={"serviceAccountName": account(job)},
    )


def _exec_worker(job: TrainingJob, replica: Replica) -> DiscoveryConfig:
    """A worker mounts the script, too: Open MPI looks for its rsh agent on every host."""
    return DiscoveryConfig(
        container=_first_container(job, replica),
        env={},
        command=() if _container(job, replica).get("command") else IDLE_COMMAND,
        volume_mounts=[{"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH}],
        volumes=[_config_volume(job, {KUBEXEC: _SCRIPT_MODE})],
    )


def _ssh(job: TrainingJob, replica: Replica, domain: str) -> DiscoveryConfig:
    options, is_launcher = options_of(job), replica.type == LAUNCHER
    container = _container(job, replica)
    is_idle = not is_launcher and not container.get("command") and not container.get("args")
    hidden = {} if options.launcher_works or not is_launcher else _NO_GPUS
    return DiscoveryConfig(
        container=_first_container(job, replica),
        env={
            "K_MPI_JOB_ROLE": replica.type.lower(),
            **(_launcher_env(options) if is_launcher else {}),
            **hidden,
        },
        command=SSHD if is_idle else (),
        volume_mounts=[
            {"name": SSH_VOLUME, "mountPath": options.ssh_path},
            *([{"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH}] if is_launcher else []),
        ],
        volumes=[
            _key_volume(job, options),
            *([_config_volume(job, {HOST_FILE: _FILE_MODE, DISCOVERY_SCRIPT: _SCRIPT_MODE})] if is_launcher else []),
        ],
        pod_fields=_host_name(job, replica, domain),
    )


def _launcher_env(options: MpiOptions) -> Mapping[str, str]:
    slots = str(options.slots)
    match options.implementation:
        case Implementation.OPEN_MPI:
            return {
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "OMPI_MCA_orte_default_hostfile": _HOST_FILE_PATH,
                "OMPI_MCA_plm_rsh_args": SSH_ATTEMPTS,
                "OMPI_MCA_orte_set_default_slots": slots,
                "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
                "PRTE_MCA_prte_default_hostfile": _HOST_FILE_PATH,
                "PRTE_MCA_plm_ssh_args": SSH_ATTEMPTS,
            }
        case Implementation.INTEL:
            return {
                "I_MPI_HYDRA_HOST_FILE": _HOST_FILE_PATH,
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH_ATTEMPTS,
                "I_MPI_PERHOST": slots,
            }
        case Implementation.MPICH:
            return {"HYDRA_HOST_FILE": _HOST_FILE_PATH, "HYDRA_LAUNCH_EXTRA_ARGS": SSH_ATTEMPTS}


def _config_volume(job: TrainingJob, modes: Mapping[str, int]) -> JsonObject:
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": CONFIG_VOLUME, "configMap": {"name": config_name(job), "items": items}}


def _key_volume(job: TrainingJob, options: MpiOptions) -> JsonObject:
    """The keys. Under another path than root's, users copy them in an init container that sets owner and mode."""
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa"},
        {"key": "ssh-publickey", "path": "id_rsa.pub"},
        {"key": "ssh-publickey", "path": "authorized_keys"},
    ]
    mode = {"defaultMode": _KEY_MODE} if options.ssh_path == SSH_PATH else {}
    return {"name": SSH_VOLUME, "secret": {"secretName": secret_name(job), "items": items, **mode}}


def _host_name(job: TrainingJob, replica: Replica, domain: str) -> JsonObject:
    """The names under which the job's Service publishes the pod, and a search domain for bare host names."""
    spec = _template_spec(job, replica)
    users = spec.get("dnsConfig", {})
    search = f"{job.key.name}.{job.key.namespace}.svc.{domain or DEFAULT_CLUSTER_DOMAIN}"
    return {
        "hostname": pod_name(job, replica),
        "subdomain": job.key.name,
        "dnsConfig": {**users, "searches": [*users.get("searches", []), search]},
    }


def account(job: TrainingJob) -> str:
    """The user's service account of the launcher, else the one that the operator makes."""
    spec = _template_spec(job, Replica(LAUNCHER, 0))
    # The API server reads the old name of the field only if the new one is missing, which it will not be.
    named: str = spec.get("serviceAccountName") or spec.get("serviceAccount") or ""
    return named or pod_name(job, Replica(LAUNCHER, 0))


def _template_spec(job: TrainingJob, replica: Replica) -> JsonObject:
    group = job.replica_spec(replica.type)
    found: JsonObject = {} if group is None else group.template.get("spec", {})
    return found


def _container(job: TrainingJob, replica: Replica) -> JsonObject:
    return main_container({"spec": _template_spec(job, replica)}, "") or {}


def _first_container(job: TrainingJob, replica: Replica) -> str:
    return str(_container(job, replica).get("name", ""))
