"""The current state of the cluster, updated by watch events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from tarragon.base.resources import Resources
from tarragon.cli.jobview.jobs import known, pods_of, sighting
from tarragon.cli.jobview.progress import Progress, newest, read
from tarragon.cli.top.entries import Entry, JobKey, entry
from tarragon.cli.top.machines import Requests
from tarragon.frameworks.plugin import Framework
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import CustomObject, Key, OwnerIdentity


@dataclass(slots=True)
class Scene:
    """The jobs, pods, nodes and metrics that `top` shows. `version` increases with every change.

    Changed jobs are decoded later, in portions, because 10,000 may arrive at once; `unread` holds the remaining ones.
    """

    jobs: dict[JobKey, Entry] = field(default_factory=dict)
    unread: dict[JobKey, tuple[Framework, CustomObject]] = field(default_factory=dict)
    pods: dict[OwnerIdentity, dict[Key, Pod]] = field(default_factory=dict)
    """By controlling owner."""
    nodes: dict[Key, Node] = field(default_factory=dict)
    requests: Requests = field(default_factory=Requests)
    usage: Mapping[str, Resources] = field(default_factory=dict)
    """The used resources by node name and by `namespace/name` of the pod; empty without metrics."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Remarks about what this user may not list, by the plural of the kind."""
    version: int = 0

    def job_changed(self, framework: Framework, old: CustomObject | None, new: CustomObject | None) -> None:
        self.version += 1
        found = new or old
        if found is None:
            return
        key = framework.kind, found.metadata.key
        if new is not None:
            self.unread[key] = framework, new
        else:
            self.unread.pop(key, None)
            self.jobs.pop(key, None)

    def read_some(self, number: int) -> None:
        """Decode at most `number` of the changed jobs."""
        for key in list(islice(self.unread, number)):
            framework, found = self.unread.pop(key)
            self.jobs[key] = entry(known(framework, found))
            self.version += 1

    def pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            owner = pod.metadata.controlled_by if pod is not None else None
            if owner is not None:
                self.pods.setdefault(owner, {}).pop(key, None)
                if new is not None and pod is new:
                    self.pods[owner][key] = new
                if not self.pods[owner]:
                    del self.pods[owner]
        self.version += 1

    def controlled_in(self, namespace: str) -> list[Pod]:
        """Return the pods in a namespace that have a controller of any kind."""
        return [pod for owner, pods in self.pods.items() if owner.namespace == namespace for pod in pods.values()]

    def node_changed(self, key: Key, _: Node | None, new: Node | None) -> None:
        self.nodes.pop(key, None)
        if new is not None:
            self.nodes[key] = new
        self.version += 1

    def progress(self, each: Entry) -> Progress:
        """Compute the progress of a job's replicas from its pods."""
        pods = self.pods.get(each.job.as_owner, {}).values()
        return read(sighting(each.job, newest(pods_of(each.job, pods))))

    def counts(self) -> Counter[str]:
        """Count the jobs by state."""
        return Counter(each.state for each in self.jobs.values())
