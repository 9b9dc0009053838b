"""One question to two servers: the embedded one with roles in force, and a real one; in whoever's name."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ApiError
from tarragon.client.http.client import Http
from tarragon.client.http.connection import kubeconfig
from tarragon.client.http.transport import Server
from tarragon.kube.core import NAMESPACES
from tarragon.kube.meta import Resource
from tarragon.localcluster.auth.authorizers import Authorization
from tarragon.localcluster.daemon.cluster import LocalCluster, Settings
from tarragon.localcluster.home.home import Home
from tools.controlplane import ControlPlane

Json = dict[str, Any]
RBAC, AUTHORIZATION = "rbac.authorization.k8s.io", "authorization.k8s.io"
PATIENCE = 60.0


def kind(group: str, plural: str, name: str, *, namespaced: bool = False) -> Resource[Json]:
    return Resource(group=group, version="v1", plural=plural, kind=name, model=dict, namespaced=namespaced)


ROLES = kind(RBAC, "roles", "Role", namespaced=True)
CLUSTER_ROLES = kind(RBAC, "clusterroles", "ClusterRole")
BINDINGS = kind(RBAC, "rolebindings", "RoleBinding", namespaced=True)
CLUSTER_BINDINGS = kind(RBAC, "clusterrolebindings", "ClusterRoleBinding")
ACCESS_REVIEWS = kind(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview")
SELF_ACCESS_REVIEWS = kind(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview")
RULES_REVIEWS = kind(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview")
PODS = kind("", "pods", "Pod", namespaced=True)


@dataclass(frozen=True, slots=True)
class Place:
    """A server, as its administrator."""

    server: Server
    stack: AsyncExitStack

    async def client(self, user: str = "", groups: Sequence[str] = ()) -> Http:
        """In that user's name, if there is one."""
        headers = [("Impersonate-User", user)] if user else []
        headers += [("Impersonate-Group", group) for group in groups]
        server = replace(self.server, headers=(*self.server.headers, *headers))
        return await self.stack.enter_async_context(Http(server, random.Random(1)))


@dataclass(frozen=True, slots=True)
class Both:
    real: Place
    ours: Place

    async def clients(self, user: str = "", groups: Sequence[str] = ()) -> tuple[Http, Http]:
        return await self.real.client(user, groups), await self.ours.client(user, groups)

    async def prepare(self, *objects: tuple[Resource[Json], Json]) -> None:
        """Have them on both."""
        for client in await self.clients():
            await asyncio.gather(*(client.create(resource, body) for resource, body in objects))

    async def namespace(self, name: str) -> None:
        for client in await self.clients():
            await client.create(NAMESPACES, {"metadata": {"name": name}})


async def told(client: Http, resource: Resource[Json], body: Json) -> tuple[int, str]:
    """The code and the words of a create; 201 and nothing where it succeeded."""
    try:
        await client.create(resource, body)
    except ApiError as error:
        return error.code, str(error.status["message"])
    return 201, ""


def rule(verbs: str, resources: str, groups: str = "-", names: str = "") -> Json:
    """Words in a row; `-` is the core group."""
    named = {"resourceNames": names.split()} if names else {}
    return {
        "verbs": verbs.split(),
        "apiGroups": ["" if group == "-" else group for group in groups.split()],
        "resources": resources.split(),
        **named,
    }


def role(name: str, *rules: Json, namespace: str = "") -> Json:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, "rules": list(rules)}


def binding(name: str, role_name: str, *subjects: Json, namespace: str = "", is_of_cluster: bool = True) -> Json:
    return {
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole" if is_of_cluster else "Role", "name": role_name},
        "subjects": list(subjects),
    }


def person(name: str) -> Json:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


@asynccontextmanager
async def both(plane: ControlPlane, folder: Path) -> AsyncIterator[Both]:
    home = Home(folder)
    home.prepare()
    cluster = await LocalCluster.start(Settings(home=home, authorization=Authorization.RBAC), SystemClock())
    try:
        async with AsyncExitStack() as stack:
            real = Place(kubeconfig({}, path=plane.kubeconfig).server, stack)
            ours = Server(url=cluster.url, ca_data=home.ca.read_bytes(), token=home.read_token())
            yield Both(real, Place(ours, stack))
    finally:
        await cluster.stop()
