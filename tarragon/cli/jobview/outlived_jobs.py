"""Which pods are left over from jobs that have ended: they do not keep the embedded cluster awake."""

from __future__ import annotations

from tarragon.cli.jobview.jobs import pods_of, read_job
from tarragon.client.errors import NotFound
from tarragon.client.port import Client
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key


async def outlives_its_job(cluster: Client, pod: Pod) -> bool:
    """Whether the pod is a replica of a job that has ended. A TensorBoard is none, and is there to be looked at."""
    owner = pod.metadata.controller_identity
    if owner is None:
        return False
    for framework in FRAMEWORKS:
        resource = framework.resource
        if (resource.group, resource.kind) != (owner.group, owner.kind):
            continue
        try:
            job = read_job(framework, await cluster.get(resource, Key(owner.namespace, owner.name)))
        except NotFound:
            return False  # deleted: its pods are, too
        return job.status.phase.is_final and any(pods_of(job, [pod]))
    return False
