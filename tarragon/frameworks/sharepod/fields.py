"""The names that the modules of SharePod share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.job.model import Decides, Replica, ReplicaRole, ReplicaType
from tarragon.kube.meta import CustomObject, Resource

SHAREPODS = Resource(group="kubeshare.nthu", version="v1", plural="sharepods", kind="SharePod", model=CustomObject)
POD = ReplicaType("Pod")
ROLES: Mapping[ReplicaType, ReplicaRole] = MappingProxyType({POD: ReplicaRole(decides=Decides.AS_CHIEF)})
ONLY_REPLICA = Replica(POD, 0)
