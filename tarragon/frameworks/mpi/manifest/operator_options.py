"""The flags of the first mpi-operator that were defaults of fields of v1alpha1."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.frameworks.mpi.fields import V1Alpha1Field
from tarragon.frameworks.mpi.manifest.v1alpha1_decoding import GPU, RESOURCES, UNITS_PER_NODE
from tarragon.frameworks.plugin import FieldOption


def _help(field: V1Alpha1Field) -> str:
    return f"{field} of new v1alpha1 MPIJobs without it"


OPERATOR_OPTIONS: Sequence[FieldOption] = (
    *(
        FieldOption(flag=flag, field=field.value, default=UNITS_PER_NODE, help=_help(field))
        for flag, field in (
            ("--gpus-per-node", V1Alpha1Field.GPUS_PER_NODE),
            ("--processing-units-per-node", V1Alpha1Field.UNITS_PER_NODE),
        )
    ),
    FieldOption(
        flag="--processing-resource-type",
        field=V1Alpha1Field.RESOURCE.value,
        default=GPU,
        choices=RESOURCES,
        help=_help(V1Alpha1Field.RESOURCE),
    ),
)
