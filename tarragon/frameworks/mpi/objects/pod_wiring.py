"""What the pods of an MPIJob get so that mpirun finds its workers and starts its daemons on them.

Before v2beta1, mpirun calls `kubexec.sh`, which starts the daemon by the API server's exec; an init container brings
kubectl. Since then it calls ssh, with a key pair in all pods. On a node that runs processes, both reach an agent of
the node instead: it sets TARRAGON_RSH, and its `ssh` is first on the PATH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tarragon.frameworks.mpi.fields import IDLE_COMMAND, LAUNCHER
from tarragon.frameworks.mpi.objects.host_files import host_file_names
from tarragon.frameworks.mpi.objects.kubexec import KUBECTL_PATH
from tarragon.frameworks.mpi.objects.mpirun_variables import variables_of_named, variables_of_others
from tarragon.frameworks.mpi.objects.names import (
    CONFIG_PATH,
    DISCOVERY_SCRIPT,
    KUBEXEC,
    config_name,
    pod_name,
    secret_name,
)
from tarragon.frameworks.mpi.options import SSH_PATH, MpiOptions, Transport, options_of
from tarragon.frameworks.plugin import DiscoveryConfig, FileDelivery, GangSize
from tarragon.job.model import Replica, TrainingJob
from tarragon.kube.meta import JsonObject
from tarragon.kube.pod_validation import main_container

KUBECTL_IN_IMAGE = "/usr/local/bin/kubectl"
"""Where the operator's image has kubectl."""
CONFIG_VOLUME, KUBECTL_VOLUME, SSH_VOLUME = "mpi-job-config", "mpi-job-kubectl", "ssh-auth"
SSHD = ("/usr/sbin/sshd", "-De")
DEFAULT_CLUSTER_DOMAIN = "cluster.local"
_SCRIPT_MODE, _FILE_MODE, _KEY_MODE = 0o555, 0o444, 0o600

_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
"""Without these, images of NVIDIA see all GPUs of the node, although the launcher requests none."""


def discovery_config(job: TrainingJob, _: GangSize, domain: str) -> Callable[[Replica], DiscoveryConfig | None]:
    """The wiring of all replicas. It does not depend on the size: the host file is a volume that follows it."""

    def config(replica: Replica) -> DiscoveryConfig:
        options = options_of(job)
        if options.transport is Transport.EXEC:
            return _exec_launcher(job, options) if replica.type == LAUNCHER else _exec_worker(job, replica)
        return _ssh(job, replica, domain)

    return config


def _exec_launcher(job: TrainingJob, options: MpiOptions) -> DiscoveryConfig:
    launcher = _container(job, Replica(LAUNCHER, 0))
    container = {
        "name": "kubectl-delivery",
        # As the launcher itself: the pod requests no more than the scheduler knows of, and a quota finds its limits.
        "resources": launcher.get("resources", {}),
        # Nor does it need another level of Pod Security. The image has a user of its own, who may write emptyDirs.
        **({"securityContext": launcher["securityContext"]} if launcher.get("securityContext") else {}),
        "volumeMounts": [{"name": KUBECTL_VOLUME, "mountPath": KUBECTL_PATH}],
    }
    return DiscoveryConfig(
        container=_first_container(job, Replica(LAUNCHER, 0)),
        env={**variables_of_named(options), **({} if options.launcher_works else _NO_GPUS)},
        default_env=variables_of_others(options),
        volume_mounts=[
            {"name": KUBECTL_VOLUME, "mountPath": KUBECTL_PATH},
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH},
        ],
        volumes=[
            {"name": KUBECTL_VOLUME, "emptyDir": {}},
            _config_volume(job, {KUBEXEC: _SCRIPT_MODE, **_launcher_files(options)}),
        ],
        deliveries=[FileDelivery(source=KUBECTL_IN_IMAGE, target=f"{KUBECTL_PATH}/kubectl", container=container)],
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
            **(variables_of_named(options) if is_launcher else {}),
            **hidden,
        },
        default_env=variables_of_others(options) if is_launcher else {},
        command=SSHD if is_idle else (),
        volume_mounts=[
            {"name": SSH_VOLUME, "mountPath": options.ssh_path},
            *([{"name": CONFIG_VOLUME, "mountPath": CONFIG_PATH}] if is_launcher else []),
        ],
        volumes=[
            _key_volume(job, options),
            *([_config_volume(job, _launcher_files(options))] if is_launcher else []),
        ],
        pod_fields=_host_name(job, replica, domain),
    )


def _launcher_files(options: MpiOptions) -> Mapping[str, int]:
    """The files of the ConfigMap that all launchers have, with their modes."""
    return {**dict.fromkeys(host_file_names(options.implementation), _FILE_MODE), DISCOVERY_SCRIPT: _SCRIPT_MODE}


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
