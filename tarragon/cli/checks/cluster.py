"""Checks that a cluster can run training jobs. All requests run concurrently; a forbidden one becomes a finding."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.checks import features, kinds, nodes
from tarragon.cli.checks.operators import Seen, operators
from tarragon.cli.checks.rights import Answers, of_operator, of_user, operator_findings, user_findings
from tarragon.cli.output.finding import Finding
from tarragon.client.errors import ApiError, Forbidden, NotFound
from tarragon.client.http.transport import Request, Server, Transport
from tarragon.client.leader_election import HELD, Held
from tarragon.client.port import Cluster, Selection
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
from tarragon.kube.codec import decode
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, STORAGE_CLASSES
from tarragon.kube.meta import Json, Key, Resource
from tarragon.operator.coexistence.rivals import DEPLOYMENTS, ENDPOINTS_LOCKS, LEASE_LOCKS, LOCKS, Found
from tarragon.operator.rbac import LEASE_NAME, Question

if TYPE_CHECKING:
    from tarragon.cli.targets.foreign import Foreign

T = TypeVar("T")

OLDEST = (1, 20)
HOME = "tarragon-system"
"""The namespace in which deploy/ installs the operator."""

_REVIEWS: Resource[Json] = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    model=dict,
    namespaced=False,
)


async def of_cluster(where: Foreign, clock: Clock, *, for_operator: bool) -> Sequence[Finding]:
    """Run all checks. A cluster that does not answer is a finding, not an exception."""
    try:
        version = await _version(where.access.server, clock)
    except TarragonError as error:
        readable = where.words(error)
        return [Finding("error", "cluster", readable.what, "\n".join(filter(None, (readable.why, readable.remedy))))]
    async with where.client() as cluster:
        probe = _Probe(cluster, where.access.server, where.namespace, clock)
        checks = [
            probe.namespace_found(),
            *(probe.kind(framework) for framework in FRAMEWORKS),
            probe.rights(),
            *([probe.operators_rights()] if for_operator else []),
            probe.at_work(),
            probe.nodes(),
            probe.schedulers(),
            probe.volumes(),
        ]
        results = await asyncio.gather(*map(_or_warning, checks))
    return [_version_finding(where.name, version), *(finding for result in results for finding in result)]


def _version_finding(name: str, version: str) -> Finding:
    """Check that the cluster's version of Kubernetes is supported."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    text = f"{name}, Kubernetes {version}"
    if match is None or (int(match[1]), int(match[2])) >= OLDEST:
        return Finding("ok", "cluster", text)
    least = ".".join(map(str, OLDEST))
    return Finding(
        "error", "cluster", f"{text}: Tarragon needs {least} or newer", "ask the cluster administrator to upgrade it"
    )


async def _version(server: Server, clock: Clock) -> str:
    return str((await _get(server, clock, "/version")).get("gitVersion", "unknown"))


async def _get(server: Server, clock: Clock, path: str) -> dict[str, Json]:
    """GET a path that is not a resource: the version, or discovery."""
    transport = Transport(server, random.Random(), clock)
    try:
        found: dict[str, Json] = decode(await transport.call(Request(method="GET", path=path)), dict)
        return found
    except msgspec.DecodeError as error:
        raise TarragonError(f"{server.url} is not a Kubernetes API server", why=str(error)) from error
    finally:
        await transport.close()


async def _or_warning(check: Awaitable[Sequence[Finding]]) -> Sequence[Finding]:
    """Turn an API error into a warning, so that the other checks are still reported."""
    try:
        return await check
    except ApiError as error:
        return [Finding("warning", "cluster", f"a check failed: {error.what}")]


@dataclass(frozen=True, slots=True)
class _Probe:
    """The checks of one cluster, for a user of one namespace."""

    cluster: Cluster
    server: Server
    namespace: str
    clock: Clock

    async def namespace_found(self) -> Sequence[Finding]:
        with suppress(Forbidden):
            try:
                await self.cluster.get(NAMESPACES, Key("", self.namespace))
            except NotFound:
                remedy = f"kubectl create namespace {self.namespace}; or choose another one with -n"
                return [Finding("error", "namespace", f"namespace {self.namespace} not found", remedy)]
        return [Finding("ok", "namespace", self.namespace)]

    async def kind(self, framework: Framework) -> Sequence[Finding]:
        resource = CUSTOM_RESOURCE_DEFINITIONS.reading(dict)
        try:
            found = await self.cluster.get(resource, Key("", framework.resource.full_name))
        except NotFound:
            return [kinds.missing(framework)]
        except Forbidden:
            return [await self._served(framework)]
        return [kinds.compared(framework, found)]

    async def _served(self, framework: Framework) -> Finding:
        """Use discovery, which every user may read."""
        kind = framework.resource
        try:
            found = await _get(self.server, self.clock, f"/apis/{kind.group}/{kind.version}")
        except NotFound:
            return kinds.missing(framework)
        if kind.plural not in {each.get("name") for each in found.get("resources") or ()}:
            return kinds.missing(framework)
        return Finding(
            "ok", framework.kind, f"served as {kind.api_version}; you may not read its CustomResourceDefinition"
        )

    async def rights(self) -> Sequence[Finding]:
        return list(user_findings(await self._answers(of_user(self.namespace))))

    async def operators_rights(self) -> Sequence[Finding]:
        return list(operator_findings(await self._answers(of_operator(HOME))))

    async def _answers(self, questions: Sequence[Question]) -> Answers:
        reviews = await asyncio.gather(*(self.cluster.create(_REVIEWS, question.body) for question in questions))
        return {
            question: bool(review["status"].get("allowed")) for question, review in zip(questions, reviews, strict=True)
        }

    async def at_work(self) -> Sequence[Finding]:
        return list(operators(await self._operator_traces(), self.clock.now()))

    async def _operator_traces(self) -> Seen:
        """Fetch Leases and Endpoints by name, since a large cluster has many, and all Deployments."""
        own_leases, leases, endpoints, deployments = await asyncio.gather(
            self._leases(),
            self._named(LEASE_LOCKS),
            self._named(ENDPOINTS_LOCKS),
            self._all(DEPLOYMENTS, ""),
        )
        listings = (("Leases", leases), ("Endpoints", endpoints), ("Deployments", deployments))
        return Seen(
            leases=own_leases,
            others=Found(leases=leases or (), endpoints=endpoints or (), deployments=deployments or ()),
            unseen=[what for what, found in listings if found is None],
        )

    async def _leases(self) -> Sequence[Held] | None:
        """Return Tarragon's Leases in all namespaces, or in the usual namespace if listing all is forbidden."""
        found = await self._all(HELD, f"metadata.name={LEASE_NAME}")
        if found is not None:
            return found
        with suppress(Forbidden):
            try:
                return [await self.cluster.get(HELD, Key(HOME, LEASE_NAME))]
            except NotFound:
                return None
        return None

    async def _named(self, resource: Resource[T]) -> Sequence[T] | None:
        found = await asyncio.gather(*(self._all(resource, f"metadata.name={name}") for name in sorted(LOCKS)))
        allowed = [listing for listing in found if listing is not None]
        return [each for listing in allowed for each in listing] if len(allowed) == len(found) else None

    async def _all(self, resource: Resource[T], fields: str) -> Sequence[T] | None:
        """List a resource in all namespaces; None if that is forbidden."""
        try:
            return (await self.cluster.list(resource, Selection(fields=fields))).items
        except Forbidden:
            return None

    async def schedulers(self) -> Sequence[Finding]:
        """Use discovery, which every user may read."""
        found = await _get(self.server, self.clock, "/apis")
        return [features.gangs({str(group["name"]) for group in found.get("groups") or ()})]

    async def volumes(self) -> Sequence[Finding]:
        return [features.volumes(await self._all(STORAGE_CLASSES.reading(dict), ""))]

    async def nodes(self) -> Sequence[Finding]:
        found = await self._all(NODES, "")
        return [nodes.UNSEEN if found is None else nodes.offered(found)]
