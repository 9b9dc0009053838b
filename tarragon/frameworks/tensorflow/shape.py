"""The shape of TFJob's generations with a map of replicas."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.object_names import object_names
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.frameworks.tensorflow.fields import DEFAULT_PORT, KIND, MAIN_CONTAINER, PORT_NAME, SpecField
from tarragon.frameworks.tensorflow.replica_types import ROLES

SHAPE = KindShape(
    kind=KIND,
    replica_specs=SpecField.REPLICAS.value,
    roles=ROLES,
    main_container=MAIN_CONTAINER,
    port_name=PORT_NAME,
    default_port=DEFAULT_PORT,
)

NAMES = object_names(ROLES)
