"""Creates or updates the CustomResourceDefinitions of all job kinds in a cluster."""

from __future__ import annotations

from contextlib import suppress

from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Cluster
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from tarragon.kube.meta import Json, Key, Resource
from tarragon.operator.rbac import FOR_EVERYBODY
from tarragon.plan.config.published import LOCAL, RULES, SHARES

RBAC = "rbac.authorization.k8s.io"
ROLES, BINDINGS = (
    Resource(group=RBAC, version="v1", plural=plural, kind=kind, model=dict)
    for plural, kind in (("roles", "Role"), ("rolebindings", "RoleBinding"))
)


async def install(cluster: Cluster) -> None:
    """Creates the CustomResourceDefinitions, or updates them to this version. Does not wait until they are served."""
    for framework in FRAMEWORKS:
        definition = framework.crd()
        try:
            await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        except AlreadyExists:
            key = Key("", definition["metadata"]["name"])
            await cluster.patch(CUSTOM_RESOURCE_DEFINITIONS, key, {"spec": definition["spec"]})


async def install_here(cluster: Cluster) -> None:
    """Installs the kinds into the embedded cluster, and the role of deploy/ with which all users can run `why`."""
    await install(cluster)
    metadata = {"name": RULES, "namespace": LOCAL, "labels": {"app.kubernetes.io/name": "tarragon"}}
    rule = {
        "apiGroups": [FOR_EVERYBODY.group],
        "resources": [FOR_EVERYBODY.resource],
        "verbs": list(FOR_EVERYBODY.verbs),
        "resourceNames": list(FOR_EVERYBODY.names),
    }
    everybody = {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}
    parts: tuple[tuple[Resource[Json], Json], ...] = (
        (ROLES, {"rules": [rule]}),
        (BINDINGS, {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": RULES}, "subjects": [everybody]}),
    )
    for kind, fields in parts:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        with suppress(AlreadyExists):
            await cluster.create(kind, body)


async def install_without_operator(cluster: Cluster) -> None:
    """Installs for an operator that the user runs: deletes the settings that an earlier local operator published."""
    await install_here(cluster)
    for name in (RULES, SHARES):
        with suppress(NotFound):
            await cluster.delete(CONFIG_MAPS, Key(LOCAL, name))
