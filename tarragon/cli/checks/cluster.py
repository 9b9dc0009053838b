"""Whether a cluster can train: everything is asked at once, and what may not be asked is said."""

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
"""Where deploy/ puts the operator."""

_REVIEWS: Resource[Json] = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    model=dict,
    namespaced=False,
)


async def of_cluster(where: Foreign, clock: Clock, *, for_operator: bool) -> Sequence[Finding]:
    """Never raises: a cluster that does not answer is a finding, too."""
    try:
        version = await _version(where.access.server, clock)
    except TarragonError as error:
        told = where.words(error)
        return [Finding("error", "cluster", told.what, "\n".join(filter(None, (told.why, told.remedy))))]
    async with where.client() as cluster:
        look = _Look(cluster, where.access.server, where.namespace, clock)
        asked = [
            look.namespace_found(),
            *(look.kind(framework) for framework in FRAMEWORKS),
            look.rights(),
            *([look.operators_rights()] if for_operator else []),
            look.at_work(),
            look.nodes(),
            look.schedulers(),
            look.volumes(),
        ]
        answers = await asyncio.gather(*map(_told, asked))
    return [_fit(where.name, version), *(finding for answer in answers for finding in answer)]


def _fit(name: str, version: str) -> Finding:
    """Whether it is new enough."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    text = f"{name}, Kubernetes {version}"
    if match is None or (int(match[1]), int(match[2])) >= OLDEST:
        return Finding("ok", "cluster", text)
    least = ".".join(map(str, OLDEST))
    return Finding("error", "cluster", f"{text}: Tarragon needs {least} or newer", "ask whoever runs it for an upgrade")


async def _version(server: Server, clock: Clock) -> str:
    return str((await _get(server, clock, "/version")).get("gitVersion", "of an unknown version"))


async def _get(server: Server, clock: Clock, path: str) -> dict[str, Json]:
    """What is no object: versions, discovery."""
    transport = Transport(server, random.Random(), clock)
    try:
        found: dict[str, Json] = decode(await transport.call(Request(method="GET", path=path)), dict)
        return found
    except msgspec.DecodeError as error:
        raise TarragonError(f"{server.url} is no Kubernetes API", why=str(error)) from error
    finally:
        await transport.close()


async def _told(asked: Awaitable[Sequence[Finding]]) -> Sequence[Finding]:
    """A question that the server can't answer is no reason to keep the answers to the others."""
    try:
        return await asked
    except ApiError as error:
        return [Finding("warning", "cluster", f"a question was not answered: {error.what}")]


@dataclass(frozen=True, slots=True)
class _Look:
    """At one cluster, for somebody who works in that namespace."""

    cluster: Cluster
    server: Server
    namespace: str
    clock: Clock

    async def namespace_found(self) -> Sequence[Finding]:
        with suppress(Forbidden):
            try:
                await self.cluster.get(NAMESPACES, Key("", self.namespace))
            except NotFound:
                remedy = f"kubectl create namespace {self.namespace}; or name another one with -n"
                return [Finding("error", "namespace", f"there is no namespace {self.namespace}", remedy)]
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
        """Discovery is open to everybody."""
        kind = framework.resource
        try:
            found = await _get(self.server, self.clock, f"/apis/{kind.group}/{kind.version}")
        except NotFound:
            return kinds.missing(framework)
        if kind.plural not in {each.get("name") for each in found.get("resources") or ()}:
            return kinds.missing(framework)
        return Finding("ok", framework.kind, f"served as {kind.api_version}; whose it is you may not look at")

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
        return list(operators(await self._seen(), self.clock.now()))

    async def _seen(self) -> Seen:
        """By their names: the Leases and Endpoints of a large cluster are many."""
        ours, leases, endpoints, deployments = await asyncio.gather(
            self._leases(),
            self._named(LEASE_LOCKS),
            self._named(ENDPOINTS_LOCKS),
            self._all(DEPLOYMENTS, ""),
        )
        looked = (("Leases", leases), ("Endpoints", endpoints), ("Deployments", deployments))
        return Seen(
            leases=ours,
            others=Found(leases=leases or (), endpoints=endpoints or (), deployments=deployments or ()),
            unseen=[what for what, found in looked if found is None],
        )

    async def _leases(self) -> Sequence[Held] | None:
        """Of all namespaces, or else where one usually is."""
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
        """None where they may not be listed."""
        try:
            return (await self.cluster.list(resource, Selection(fields=fields))).items
        except Forbidden:
            return None

    async def schedulers(self) -> Sequence[Finding]:
        """Discovery is open to everybody."""
        found = await _get(self.server, self.clock, "/apis")
        return [features.gangs({str(group["name"]) for group in found.get("groups") or ()})]

    async def volumes(self) -> Sequence[Finding]:
        return [features.volumes(await self._all(STORAGE_CLASSES.reading(dict), ""))]

    async def nodes(self) -> Sequence[Finding]:
        found = await self._all(NODES, "")
        return [nodes.UNSEEN if found is None else nodes.offered(found)]
