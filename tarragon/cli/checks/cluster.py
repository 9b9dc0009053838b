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
from tarragon.cli.checks import crds, features, nodes
from tarragon.cli.checks.installation import check_version
from tarragon.cli.checks.operators import check_operators
from tarragon.cli.checks.permissions import (
    Answers,
    operator_findings,
    operator_questions,
    user_findings,
    user_questions,
)
from tarragon.cli.checks.preflight import Preflight
from tarragon.cli.output.finding import Finding
from tarragon.client.errors import ApiError, Forbidden, NotFound
from tarragon.client.http.transport import Request, RestConfig, Transport
from tarragon.client.leader_election import TYPED_LEASES, Lease
from tarragon.client.port import Client, Selector
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.codec import decode
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, STORAGE_CLASSES
from tarragon.kube.meta import Json, Key, Resource
from tarragon.operator.coexistence.listing import list_operators
from tarragon.operator.rbac import LEASE_NAME, PermissionQuestion

if TYPE_CHECKING:
    from tarragon.cli.targets.foreign import KubeconfigTarget

T = TypeVar("T")

MIN_KUBERNETES_VERSION = (1, 20)
OPERATOR_NAMESPACE = "tarragon-system"
"""The namespace in which deploy/ installs the operator."""

_REVIEWS: Resource[Json] = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    model=dict,
    namespaced=False,
)


async def check_cluster(where: KubeconfigTarget, clock: Clock, *, for_operator: bool) -> Sequence[Finding]:
    """Run all checks. A cluster that does not answer is a finding, not an exception."""
    try:
        version = await _version(where.access.rest_config, clock)
    except TarragonError as error:
        readable = where.translated(error)
        return [
            Finding("error", "cluster", readable.summary, "\n".join(filter(None, (readable.cause, readable.remedy))))
        ]
    async with where.client() as cluster:
        probe = _Probe(cluster, where.access.rest_config, where.namespace, clock)
        checks = [
            probe.namespace_found(),
            *(probe.kind(framework) for framework in FRAMEWORKS),
            probe.rights(),
            *([probe.operators_rights(), probe.installation()] if for_operator else []),
            probe.at_work(),
            probe.nodes(),
            probe.schedulers(),
            probe.volumes(),
        ]
        results = await asyncio.gather(*map(_or_warning, checks))
    versions = list(check_version(version)) if for_operator else []
    return [_version_finding(where.name, version), *versions, *(finding for result in results for finding in result)]


def _version_finding(name: str, version: str) -> Finding:
    """Check that the cluster's version of Kubernetes is supported."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    text = f"{name}, Kubernetes {version}"
    if match is None or (int(match[1]), int(match[2])) >= MIN_KUBERNETES_VERSION:
        return Finding("ok", "cluster", text)
    least = ".".join(map(str, MIN_KUBERNETES_VERSION))
    return Finding(
        "error", "cluster", f"{text}: Tarragon needs {least} or newer", "ask the cluster administrator to upgrade it"
    )


async def _version(server: RestConfig, clock: Clock) -> str:
    return str((await _get(server, clock, "/version")).get("gitVersion", "unknown"))


async def _get(server: RestConfig, clock: Clock, path: str) -> dict[str, Json]:
    """GET a path that is not a resource: the version, or discovery."""
    try:
        found: dict[str, Json] = decode(await _get_bytes(server, clock, path), dict)
    except msgspec.DecodeError as error:
        raise TarragonError(f"{server.url} is not a Kubernetes API server", why=str(error)) from error
    return found


async def _get_bytes(server: RestConfig, clock: Clock, path: str) -> bytes:
    transport = Transport(server, random.Random(), clock)
    try:
        return await transport.call(Request(method="GET", path=path))
    finally:
        await transport.close()


async def _or_warning(check: Awaitable[Sequence[Finding]]) -> Sequence[Finding]:
    """Turn an API error into a warning, so that the other checks are still reported."""
    try:
        return await check
    except ApiError as error:
        return [Finding("warning", "cluster", f"a check failed: {error.summary}")]


@dataclass(frozen=True, slots=True)
class _Probe:
    """The checks of one cluster, for a user of one namespace."""

    cluster: Client
    server: RestConfig
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
        resource = CUSTOM_RESOURCE_DEFINITIONS.with_model(dict)
        try:
            found = await self.cluster.get(resource, Key("", framework.resource.full_name))
        except NotFound:
            return [crds.missing_crd(framework)]
        except Forbidden:
            return [await self._served(framework)]
        return [crds.compare_crd(framework, found)]

    async def _served(self, framework: Framework) -> Finding:
        """Use discovery, which every user may read."""
        kind = framework.resource
        try:
            found = await _get(self.server, self.clock, f"/apis/{kind.group}/{kind.version}")
        except NotFound:
            return crds.missing_crd(framework)
        if kind.plural not in {each.get("name") for each in found.get("resources") or ()}:
            return crds.missing_crd(framework)
        return Finding(
            "ok", framework.kind, f"served as {kind.api_version}; you may not read its CustomResourceDefinition"
        )

    async def rights(self) -> Sequence[Finding]:
        return list(user_findings(await self._answers(user_questions(self.namespace))))

    async def operators_rights(self) -> Sequence[Finding]:
        return list(operator_findings(await self._answers(operator_questions(OPERATOR_NAMESPACE))))

    async def installation(self) -> Sequence[Finding]:
        """Check the operators that are installed, for those who run them."""

        async def get(path: str) -> bytes:
            return await _get_bytes(self.server, self.clock, path)

        checks = Preflight(cluster=self.cluster, server=self.server, get=get, clock=self.clock, home=OPERATOR_NAMESPACE)
        return await checks.findings()

    async def _answers(self, questions: Sequence[PermissionQuestion]) -> Answers:
        reviews = await asyncio.gather(
            *(self.cluster.create(_REVIEWS, question.access_review) for question in questions)
        )
        return {
            question: bool(review["status"].get("allowed")) for question, review in zip(questions, reviews, strict=True)
        }

    async def at_work(self) -> Sequence[Finding]:
        own_leases, others = await asyncio.gather(self._leases(), list_operators(self.cluster))
        return list(check_operators(own_leases, others, self.clock.now()))

    async def _leases(self) -> Sequence[Lease] | None:
        """Return Tarragon's Leases in all namespaces, or in the usual namespace if listing all is forbidden."""
        found = await self._all(TYPED_LEASES, f"metadata.name={LEASE_NAME}")
        if found is not None:
            return found
        with suppress(Forbidden):
            try:
                return [await self.cluster.get(TYPED_LEASES, Key(OPERATOR_NAMESPACE, LEASE_NAME))]
            except NotFound:
                return None
        return None

    async def _all(self, resource: Resource[T], fields: str) -> Sequence[T] | None:
        """List a resource in all namespaces; None if that is forbidden."""
        try:
            return (await self.cluster.list(resource, Selector(field_selector=fields))).items
        except Forbidden:
            return None

    async def schedulers(self) -> Sequence[Finding]:
        """Use discovery, which every user may read."""
        found = await _get(self.server, self.clock, "/apis")
        return [features.check_gang_schedulers({str(group["name"]) for group in found.get("groups") or ()})]

    async def volumes(self) -> Sequence[Finding]:
        return [features.check_storage_classes(await self._all(STORAGE_CLASSES.with_model(dict), ""))]

    async def nodes(self) -> Sequence[Finding]:
        found = await self._all(NODES, "")
        return [nodes.NODES_FORBIDDEN] if found is None else [nodes.check_nodes(found), *nodes.check_hami(found)]
