"""What differs between the kinds of kubeflow.org whose replica specs are a map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.job.model import ReplicaRole, ReplicaType, SuccessPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class KindShape:
    """The names and replica types of a kind, for the shared decoder, rules and definitions."""

    kind: str
    replica_specs: str
    """The field of spec with the map of replica specs: `tfReplicaSpecs`."""
    roles: Mapping[ReplicaType, ReplicaRole]
    main_container: str
    port_name: str
    default_port: int
    success_policy: SuccessPolicy = SuccessPolicy.WORKER_ZERO
    """When a job without a chief succeeds, unless its manifest says otherwise."""
    restarts_together: bool = False
    """Whether its replicas can't go on without any one of them."""

    @property
    def replica_specs_path(self) -> str:
        return f"spec.{self.replica_specs}"
