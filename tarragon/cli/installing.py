"""Bringing the kinds of jobs into a cluster: their CustomResourceDefinitions, new or as this version has them."""

from __future__ import annotations

from tarragon.cluster.errors import AlreadyExists
from tarragon.cluster.port import Cluster
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS
from tarragon.kube.meta import Key


async def install(cluster: Cluster) -> None:
    """Return when all kinds are served."""
    for framework in FRAMEWORKS:
        definition = framework.crd()
        try:
            await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        except AlreadyExists:
            key = Key("", definition["metadata"]["name"])
            await cluster.patch(CUSTOM_RESOURCE_DEFINITIONS, key, {"spec": definition["spec"]})
