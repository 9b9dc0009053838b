"""The Framework values of TFJob and its predecessor TfJob: all that the rest of the program knows about TensorFlow."""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.tensorflow import (
    default_server,
    mlkube,
    v1,
    v1_dragon,
    v1_flat,
    v1alpha1,
    v1alpha2,
    v1beta1,
    v1beta2,
)
from tarragon.frameworks.tensorflow.crd import crd, definition
from tarragon.frameworks.tensorflow.fields import GROUP, KIND, MAIN_CONTAINER, PORT_NAME
from tarragon.frameworks.tensorflow.replica_types import ROLES, START_ORDER
from tarragon.frameworks.tensorflow.rules import RULES, UNSUPPORTED_RULES, WARNING_RULES
from tarragon.frameworks.tensorflow.tf_config import cluster_size
from tarragon.frameworks.tensorflow.verdict import evaluate
from tarragon.kube.meta import CustomObject, Resource

TFJOBS = Resource(group=GROUP, version="v1", plural="tfjobs", kind=KIND, model=CustomObject)


TENSORFLOW = Framework(
    kind=KIND,
    resource=TFJOBS,
    dialects=(
        v1_dragon.DIALECT,
        v1_flat.DIALECT,
        v1beta2.DIALECT,
        v1beta1.DIALECT,
        v1alpha2.DIALECT,
        v1alpha1.DIALECT,
        v1.DIALECT,
    ),
    rules=RULES,
    warning_rules=WARNING_RULES,
    unsupported_rules=UNSUPPORTED_RULES,
    main_container=MAIN_CONTAINER,
    port_name=PORT_NAME,
    service_size=cluster_size,
    config_maps=default_server.config_maps,
    evaluate=evaluate,
    roles=ROLES,
    start_order=START_ORDER,
    crd=crd,
)

MLKUBE = replace(
    TENSORFLOW,
    kind=mlkube.KIND,
    resource=Resource(
        group=mlkube.GROUP, version=mlkube.VERSION, plural="tfjobs", kind=mlkube.KIND, model=CustomObject
    ),
    dialects=(mlkube.DIALECT,),
    crd=lambda: definition(mlkube.GROUP, mlkube.KIND, (mlkube.VERSION,)),
    is_crd_optional=True,
)
"""The TfJob of 2017, a different kind in a different group, with its own CustomResourceDefinition."""
