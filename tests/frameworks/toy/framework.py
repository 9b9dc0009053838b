"""The Framework value of ToyJob. This folder is all that a kind of job needs, besides a line in the registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import MappingProxyType

from tarragon.frameworks.kubeflow.crd import definition
from tarragon.frameworks.kubeflow.decoding import Generation, decoder
from tarragon.frameworks.kubeflow.fields import RUN_POLICY, SUSPEND_PATH, condition_reason
from tarragon.frameworks.kubeflow.labels import since_training_operator_1_7
from tarragon.frameworks.kubeflow.object_names import object_names
from tarragon.frameworks.kubeflow.pod_rules import POD_RULES
from tarragon.frameworks.kubeflow.rules import has_main_container, names_fit
from tarragon.frameworks.kubeflow.schema import (
    Schema,
    flat_policies,
    nested_policies,
    open_object,
    replica_fields,
    tarragon_fields,
    tarragon_status,
)
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.frameworks.kubeflow.verdict import evaluate
from tarragon.frameworks.log_causes import LogCause
from tarragon.frameworks.plugin import Dialect, DiscoveryConfig, EditableFields, Framework, GangSize
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Decides, Replica, ReplicaRole, ReplicaType, TrainingJob
from tarragon.job.training_operator_status import status_fields
from tarragon.kube.meta import CustomObject, Resource

LEADER, HUB, HELPER = ReplicaType("Leader"), ReplicaType("Hub"), ReplicaType("Helper")
SHAPE = KindShape(
    kind="ToyJob",
    replica_specs="toyReplicaSpecs",
    roles=MappingProxyType(
        {
            LEADER: ReplicaRole(decides=Decides.AS_CHIEF),
            HUB: ReplicaRole(is_anchor=True),
            HELPER: ReplicaRole(is_elastic=True),
        }
    ),
    main_container="toy",
    port_name="toy-port",
    default_port=3333,
)
TOYJOBS = Resource(group="example.org", version="v1", plural="toyjobs", kind=SHAPE.kind, model=CustomObject)
NAMES = object_names(SHAPE.roles)
LABELS = since_training_operator_1_7("toyjob-controller")


def all_listed(_: TrainingJob, size: GangSize) -> GangSize:
    return size


def discovery_config(job: TrainingJob, size: GangSize, _: str) -> Callable[[Replica], DiscoveryConfig | None]:
    """TOY_CONFIG: the addresses of the hubs, and who the replica is."""
    hubs = [f"{NAMES.service(job, Replica(HUB, index))}:{SHAPE.default_port}" for index in range(size.get(HUB, 0))]

    def config(replica: Replica) -> DiscoveryConfig:
        env = {"TOY_CONFIG": json.dumps({"hubs": hubs, "me": str(replica), "helpers": size.get(HELPER, 0)})}
        return DiscoveryConfig(container=SHAPE.main_container, env=env)

    return config


def schema() -> Schema:
    specs = {"type": "object", "additionalProperties": open_object(replica_fields())}
    spec = open_object({SHAPE.replica_specs: specs, RUN_POLICY: open_object(flat_policies() | nested_policies())})
    return open_object({"spec": spec, "status": open_object({"tarragon": tarragon_status(tarragon_fields())})})


TOY = Framework(
    kind=SHAPE.kind,
    resource=TOYJOBS,
    dialects=(
        Dialect(
            name=TOYJOBS.api_version,
            api_version=TOYJOBS.api_version,
            matches=lambda _: True,
            decode=decoder(
                SHAPE,
                Generation(
                    name=TOYJOBS.api_version, api_version=TOYJOBS.api_version, clean_pods=CleanPodPolicy.RUNNING
                ),
            ),
            names=NAMES,
            labels=LABELS.of_replica,
            selector=LABELS.of_job,
            worker_selector=LABELS.of_workers,
            discovery_config=discovery_config,
            status_fields=status_fields,
            condition_reason=condition_reason(SHAPE.kind, invalid="ToyJobFailedValidation"),
            exit_codes=SINCE_TRAINING_OPERATOR_1_5,
        ),
    ),
    rules=(*POD_RULES, has_main_container(SHAPE), names_fit(NAMES.pod, all_listed)),
    warning_rules=(),
    main_container=SHAPE.main_container,
    port_name=SHAPE.port_name,
    service_size=all_listed,
    evaluate=evaluate,
    roles=SHAPE.roles,
    start_order=(HUB, LEADER, HELPER),
    crd=lambda: definition(TOYJOBS, ("v1",), schema, SHAPE.replica_specs),
    editable_fields=EditableFields(suspend=SUSPEND_PATH),
    log_causes=(LogCause("the toy is broken", "a toy broke", "repair it"),),
)
