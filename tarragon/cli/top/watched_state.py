"""The current state of the cluster, updated by watch events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from tarragon.base.resources import Resources
from tarragon.cli.jobview.jobs import pods_of, progress_input, read_job
from tarragon.cli.jobview.progress import Progress, newest_pods, progress_of
from tarragon.cli.top.job_rows import JobKey, JobRow, job_row
from tarragon.cli.top.node_rows import NodeRequests
from tarragon.frameworks.plugin import Framework
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import CustomObject, Key, OwnerIdentity


@dataclass(slots=True)
class WatchedState:
    """The jobs, pods, nodes and metrics that `top` shows. `version` increases with every change.

    Changed jobs are decoded later, in portions, because 10,000 may arrive at once; `undecoded` holds the remaining
    ones.
    """

    jobs: dict[JobKey, JobRow] = field(default_factory=dict)
    undecoded: dict[JobKey, tuple[Framework, CustomObject]] = field(default_factory=dict)
    pods: dict[OwnerIdentity, dict[Key, Pod]] = field(default_factory=dict)
    """By controlling owner."""
    nodes: dict[Key, Node] = field(default_factory=dict)
    requests: NodeRequests = field(default_factory=NodeRequests)
    usage: Mapping[str, Resources] = field(default_factory=dict)
    """The used resources by node name and by `namespace/name` of the pod; empty without metrics."""
    forbidden: dict[str, str] = field(default_factory=dict)
    """Remarks about what this user may not list, by the plural of the kind."""
    version: int = 0

    def job_changed(self, framework: Framework, old: CustomObject | None, new: CustomObject | None) -> None:
        self.version += 1
        found = new or old
        if found is None:
            return
        key = framework.kind, found.metadata.key
        if new is not None:
            self.undecoded[key] = framework, new
        else:
            self.undecoded.pop(key, None)
            self.jobs.pop(key, None)

    def decode(self, number: int) -> None:
        """Decode at most `number` of the changed jobs."""
        for key in list(islice(self.undecoded, number)):
            framework, found = self.undecoded.pop(key)
            self.jobs[key] = job_row(read_job(framework, found))
            self.version += 1

    def pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            owner = pod.metadata.controller_identity if pod is not None else None
            if owner is not None:
                self.pods.setdefault(owner, {}).pop(key, None)
                if new is not None and pod is new:
                    self.pods[owner][key] = new
                if not self.pods[owner]:
                    del self.pods[owner]
        self.version += 1

    def controlled_pods(self, namespace: str) -> list[Pod]:
        """Return the pods in a namespace that have a controller of any kind."""
        return [pod for owner, pods in self.pods.items() if owner.namespace == namespace for pod in pods.values()]

    def node_changed(self, key: Key, _: Node | None, new: Node | None) -> None:
        self.nodes.pop(key, None)
        if new is not None:
            self.nodes[key] = new
        self.version += 1

    def progress(self, each: JobRow) -> Progress:
        """Compute the progress of a job's replicas from its pods."""
        pods = self.pods.get(each.job.as_owner, {}).values()
        return progress_of(progress_input(each.job, newest_pods(pods_of(each.job, pods))))

    def count_by_state(self) -> Counter[str]:
        """Count the jobs by state."""
        return Counter(each.state for each in self.jobs.values())
