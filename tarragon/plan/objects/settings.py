"""The operator's settings that apply to all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.job.annotations import NATIVE_POD_GROUP
from tarragon.kube.meta import JsonObject
from tarragon.plan.objects.accelerators import Accelerator
from tarragon.plan.objects.gpu_anchors import AnchorSettings
from tarragon.plan.objects.logs import LogFormat
from tarragon.plan.objects.placement import Placement
from tarragon.plan.objects.podgroup_kinds import DEFAULT_KIND_BY_SCHEDULER
from tarragon.plan.objects.progress import ProgressEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Operator settings that apply to all jobs."""

    cluster_domain: str = ""
    """The cluster's DNS domain, such as `cluster.local`; empty for names that end in .svc.

    Corresponds to CUSTOM_CLUSTER_DOMAIN of the training operators.
    """
    component: str = "tarragon"
    """The component name in events and the field manager in managed fields."""
    scheduler_name: str = "tarragon"
    """The name of Tarragon's scheduler. Jobs that name no other one wait for admission and are placed by it."""
    placement: Placement = Placement.DIRECT
    """How pods of jobs that Tarragon places get their node. Pods that need kube-scheduler always use node affinity."""
    creation_timeout: float = 60.0
    """Seconds that a gang stays admitted while its pods can't be created or bound (a quota, a policy, name conflicts).

    Twice the usual grace period: by then pods of an earlier job have ended, and a webhook's have started.
    """
    start_timeout: float = 300.0
    """Seconds that a gang stays admitted while its pods exist but can't start (an image, a configuration, a volume).

    Longer than a short outage of a registry and than the kubelet's backoff between two attempts.
    """
    own_image: str = "tarragon"
    """The image of the operator. Init containers that bring a tool of ours run it."""
    delivery_image: str = ""
    """Another image that they run instead: one with these tools and a shell."""
    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    """By resource name, what containers that request the resource get in addition."""
    gpu_anchors: AnchorSettings | None = None
    """How GPUs are held that pods share; None where none are shared, except on process nodes."""
    progress: ProgressEndpoint | None = None
    """Where the programs of new pods report progress; None if that is not served."""
    namespaces: tuple[str, ...] = ()
    """The namespaces whose jobs are managed; empty for all.

    With only some namespaces visible, free capacity is unknown, and placement is left to kube-scheduler.
    """
    adopts_jobs: bool = False
    """Whether jobs that other operators started are adopted without an annotation on each of them."""
    log_format: LogFormat = LogFormat.TEXT
    """The log format of jobs that do not set one themselves."""
    pod_groups: Mapping[str, str] = field(default_factory=lambda: DEFAULT_KIND_BY_SCHEDULER)
    """By scheduler name, the kind of PodGroup that the scheduler needs: a key of `podgroup_kinds.POD_GROUP_KINDS`."""
    job_defaults: Mapping[str, JsonObject] = field(default_factory=dict)
    """By job kind, values of fields that new jobs get if they lack them. Each generation takes those that it has."""
    other_managers: Mapping[str, str] = field(default_factory=dict)
    """By job kind, a description of another operator that manages it. Jobs that are not ours yet are left to it."""

    shares_cores: bool = False
    """Whether the nodes are processes of one machine, whose cores the pods without CPU requests share."""

    @property
    def pod_group_kinds(self) -> Sequence[str]:
        """The kinds of PodGroups that jobs may have: those of schedulers, and that which a job's annotation names."""
        return tuple(dict.fromkeys([*self.pod_groups.values(), NATIVE_POD_GROUP])) if self.pod_groups else ()

    @property
    def anchor_namespace(self) -> str:
        """The namespace of the anchor pods; empty if there are none: kube-scheduler knows no shares of GPUs."""
        return "" if self.gpu_anchors is None or self.namespaces else self.gpu_anchors.namespace
