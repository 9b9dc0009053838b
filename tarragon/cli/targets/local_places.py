"""Where a job's data is on this machine: its volumes, its logs, and the local ports of its services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.leftovers import used_objects
from tarragon.cli.jobview.progress import replica_order
from tarragon.cli.targets.stored_logs import log_folders
from tarragon.job.model import Replica
from tarragon.kube.core import Pod
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.network.address_translation import ServiceAddress
from tarragon.localcluster.kubelet.network.ports import allocated_ports
from tarragon.plan.reconcile.tensorboard import SERVICE_PORT


def service_addresses(nodes: Path | None, job: ClusterJob, replica: Replica) -> tuple[str, str]:
    """Returns the address of a replica's service in the cluster, and its local address; empty if not assigned yet.

    Replicas without a port have no address: others reach them in another way.
    """
    group = job.job.replica_spec(replica.type) if job.job is not None else None
    if job.job is None or job.dialect is None or group is None or not group.port:
        return "", ""
    address = ServiceAddress(
        namespace=job.key.namespace, name=job.dialect.names.service(job.job, replica), port=group.port
    )
    local = allocated_ports(nodes).get(address) if nodes is not None else None
    return f"{address.name}.{address.namespace}.svc:{address.port}", f"127.0.0.1:{local}" if local else ""


def tensorboard_address(nodes: Path | None, job: ClusterJob) -> str:
    """Returns the URL of the job's TensorBoard, or the port-forward command for it; empty if it has none."""
    if job.job is None or job.dialect is None or job.job.tensorboard is None:
        return ""
    if job.job.tensorboard.ends_with_job and job.status.phase.is_final:
        return ""
    name, namespace = job.dialect.names.tensorboard(job.job), job.key.namespace
    if nodes is None:
        return f"kubectl port-forward -n {namespace} service/{name} 6006:80, then http://127.0.0.1:6006"
    local = allocated_ports(nodes).get(ServiceAddress(namespace=namespace, name=name, port=SERVICE_PORT))
    return f"http://127.0.0.1:{local}" if local else ""


def data_folders(nodes: Path | None, job: ClusterJob, pods: Mapping[Replica, Pod]) -> Iterator[tuple[str, Path]]:
    """Yields (description, folder) of the job's data on this machine; nothing if its pods run elsewhere."""
    if nodes is None:
        return
    shared = NodeFolder(nodes / "any")
    for kind, name in used_objects({"spec": job.object.spec}):
        path = shared.claims / job.key.namespace / name
        if kind == "PersistentVolumeClaim" and path.exists():
            yield f"claim {name}", path
    folders = log_folders(nodes, job)
    for replica in sorted(folders, key=replica_order(job.requested)):
        yield f"logs of {replica}", folders[replica]
    for replica, pod in pods.items():
        node = NodeFolder(nodes / pod.spec.node_name)
        volumes = node.pod(pod.metadata.uid).volumes
        if pod.spec.node_name and volumes.exists():
            yield f"volumes of {replica}", volumes
