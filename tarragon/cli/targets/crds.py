"""Creates or updates the CustomResourceDefinitions of all job kinds in a cluster."""

from __future__ import annotations

from contextlib import suppress

from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Client
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from tarragon.kube.meta import Json, Key, Resource
from tarragon.operator.rbac import FOR_AUTHENTICATED_USERS
from tarragon.plan.config.published import EMBEDDED_NAMESPACE, RULES_CONFIG_MAP, SHARES_CONFIG_MAP

RBAC = "rbac.authorization.k8s.io"
ROLES, BINDINGS = (
    Resource(group=RBAC, version="v1", plural=plural, kind=kind, model=dict)
    for plural, kind in (("roles", "Role"), ("rolebindings", "RoleBinding"))
)


async def install_crds(cluster: Client) -> None:
    """Creates the CustomResourceDefinitions, or updates them to this version. Does not wait until they are served."""
    for framework in FRAMEWORKS:
        definition = framework.crd()
        try:
            await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        except AlreadyExists:
            key = Key("", definition["metadata"]["name"])
            await cluster.patch(CUSTOM_RESOURCE_DEFINITIONS, key, {"spec": definition["spec"]})


async def prepare_embedded(cluster: Client) -> None:
    """Installs the kinds into the embedded cluster, and the role of deploy/ with which all users can run `why`."""
    await install_crds(cluster)
    metadata = {
        "name": RULES_CONFIG_MAP,
        "namespace": EMBEDDED_NAMESPACE,
        "labels": {"app.kubernetes.io/name": "tarragon"},
    }
    rule = {
        "apiGroups": [FOR_AUTHENTICATED_USERS.group],
        "resources": [FOR_AUTHENTICATED_USERS.resource],
        "verbs": list(FOR_AUTHENTICATED_USERS.verbs),
        "resourceNames": list(FOR_AUTHENTICATED_USERS.names),
    }
    everybody = {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}
    parts: tuple[tuple[Resource[Json], Json], ...] = (
        (ROLES, {"rules": [rule]}),
        (BINDINGS, {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": RULES_CONFIG_MAP}, "subjects": [everybody]}),
    )
    for kind, fields in parts:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        with suppress(AlreadyExists):
            await cluster.create(kind, body)


async def prepare_without_operator(cluster: Client) -> None:
    """Installs for an operator that the user runs: deletes the settings that an earlier local operator published."""
    await prepare_embedded(cluster)
    for name in (RULES_CONFIG_MAP, SHARES_CONFIG_MAP):
        with suppress(NotFound):
            await cluster.delete(CONFIG_MAPS, Key(EMBEDDED_NAMESPACE, name))
