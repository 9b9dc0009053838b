"""What the installation of the operator decides for all jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tarragon.plan.objects.accelerators import Accelerator
from tarragon.plan.objects.logs import Form
from tarragon.plan.objects.placement import Placement
from tarragon.plan.objects.podgroup_kinds import BY_SCHEDULER


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the installation decides for all jobs."""

    cluster_domain: str = ""
    """As CUSTOM_CLUSTER_DOMAIN of the old operators: `cluster.local`, or empty for names that end in .svc."""
    operator: str = "tarragon"
    """The component that events and managed fields name."""
    scheduler: str = "tarragon"
    """Jobs that name no other scheduler are placed by us, and wait for their admission."""
    placement: Placement = Placement.DIRECT
    """Of jobs that we place. Pods with something that only kube-scheduler binds are placed by affinity always."""
    patience: float = 60.0
    """Seconds that a gang keeps its places while its pods can't be made or bound: a quota, a policy, names that others
    have. Twice the usual grace period: pods of an earlier job, or a webhook's, have ended and begun by then."""
    start_patience: float = 300.0
    """Seconds that it keeps them while its pods are there and can't start: an image, a configuration, a volume. A
    registry that is gone for a moment, and the pauses of a kubelet between two tries, are shorter."""
    accelerators: Mapping[str, Accelerator] = field(default_factory=dict)
    """What containers get besides that ask for these resources."""
    namespaces: tuple[str, ...] = ()
    """Those whose jobs are kept; none for all. Who sees only some can't tell what is free: kube-scheduler places."""
    adopts: bool = False
    """Whether jobs that other operators have begun are ours, too, without being asked for one by one."""
    logs: Form = Form.TEXT
    """Of jobs that don't say it themselves."""
    pod_groups: Mapping[str, str] = field(default_factory=lambda: BY_SCHEDULER)
    """By the name of a scheduler, what it wants to see of a job that names it: a key of `groupkinds.KINDS`."""
    left_to: Mapping[str, str] = field(default_factory=dict)
    """By kind, the other operator that keeps its jobs, in words: what is not ours already is left to it."""
