"""The options of the first mpi-operator, for MPIJobs of v1alpha1 and for launchers of generations before v2beta1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon import __version__
from tarragon.cli.options.gathering import option_group

if TYPE_CHECKING:
    from tarragon.kube.meta import Json
    from tarragon.plan.objects.settings import OperatorSettings

P = ParamSpec("P")

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiOptions:
    """The options as given."""

    gpus_per_node: int
    processing_units_per_node: int
    processing_resource_type: str
    kubectl_delivery_image: str | None

    def configure(self, settings: OperatorSettings) -> OperatorSettings:
        """Add them to the settings. The image is the default one until the operator finds its own."""
        image = self.kubectl_delivery_image or f"tarragon:{__version__}"
        return replace(settings, own_image=image, job_defaults={"MPIJob": self._default_fields()})

    def _default_fields(self) -> dict[str, Json]:
        """The fields that a new job of v1alpha1 gets if it lacks them. Those with the API's defaults are left out."""
        given = {
            "gpusPerNode": (self.gpus_per_node, 1),
            "processingUnitsPerNode": (self.processing_units_per_node, 1),
            "processingResourceType": (self.processing_resource_type, GPU),
        }
        return {field: value for field, (value, default) in given.items() if value != default}


_OPTIONS = (
    click.option(
        "--kubectl-delivery-image",
        metavar="IMAGE",
        help="image with /usr/local/bin/kubectl for launchers of MPIJobs before v2beta1; by default the operator's own",
    ),
    click.option(
        "--gpus-per-node",
        metavar="N",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="gpusPerNode of new v1alpha1 MPIJobs without it",
    ),
    click.option(
        "--processing-units-per-node",
        metavar="N",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="processingUnitsPerNode of new v1alpha1 MPIJobs without it",
    ),
    click.option(
        "--processing-resource-type",
        type=click.Choice([GPU, "cpu"]),
        default=GPU,
        show_default=True,
        help="processingResourceType of new v1alpha1 MPIJobs without it",
    ),
)


def mpi_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options for MPIJobs; the command gets them as `mpi`."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), option_group("mpi", MpiOptions)(command))
