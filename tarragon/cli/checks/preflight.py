"""Reads an installed operator for `tarragon check --operator`; `installation` judges what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.checks import installation
from tarragon.cli.checks.operator_crash import LAST_LINES, Crash, crash_of, crash_text
from tarragon.cli.checks.permissions import Answers, service_account_findings
from tarragon.cli.output.finding import Finding
from tarragon.client.errors import ApiError, Forbidden, NotFound
from tarragon.client.http.transport import RestConfig
from tarragon.client.port import Client, LogOptions, Selector
from tarragon.kube.codec import decode
from tarragon.kube.core import CONFIG_MAPS, PODS, SECRETS
from tarragon.kube.meta import Json, JsonObject, Key, Resource
from tarragon.operator.coexistence.detection import DEPLOYMENTS
from tarragon.operator.progress.authority import SECRET_NAME
from tarragon.operator.rbac import PermissionQuestion, questions
from tarragon.plan.config.published import RULES_CONFIG_MAP, SHARES_CONFIG_MAP

T = TypeVar("T")

_OPERATORS = "app.kubernetes.io/name=tarragon"
_RAW_DEPLOYMENTS = DEPLOYMENTS.with_model(dict)
_BUDGETS: Resource[Json] = Resource(
    group="policy", version="v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget", model=dict
)
_REVIEWS: Resource[Json] = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    model=dict,
    namespaced=False,
)
_METRICS_PORT = 8080

Get = Callable[[str], Awaitable[bytes]]
"""GET of a path that is no resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The checks of the operators that are installed. `home` is where deploy/ installs one."""

    cluster: Client
    server: RestConfig
    get: Get
    clock: Clock
    home: str

    async def findings(self) -> Sequence[Finding]:
        deployments = await self._deployments()
        if deployments is None:
            return [Finding("ok", "deployment", "unknown: you may not list Deployments")]
        checks = [self._of_deployment(each) for each in deployments]
        several = await asyncio.gather(self._credentials(), self._apis(), *checks)
        crashes = {home: await self._crash(home) for home in {each["metadata"]["namespace"] for each in deployments}}
        return [*installation.check_deployments(deployments, crashes), *(found for each in several for found in each)]

    async def _crash(self, home: str) -> str:
        """How an operator in the namespace has ended that is not ready; empty if none has, or nobody may say."""
        pods = await _or_none(
            self.cluster.list(PODS.with_model(dict), Selector(namespace=home, label_selector=_OPERATORS))
        )
        crash = next(filter(None, map(crash_of, pods.items if pods is not None else ())), None)
        if crash is None:
            return ""
        return crash_text(crash, "" if crash.message else await self._log(crash))

    async def _log(self, crash: Crash) -> str:
        """What it said last: Deployments from before this version leave no termination message."""
        options = LogOptions(container=crash.container, previous=crash.is_restarted, tail_lines=LAST_LINES)
        chunks: list[bytes] = []
        with suppress(ApiError):
            async for chunk in self.cluster.pod_log(Key(crash.namespace, crash.pod), options):
                chunks.append(chunk)  # noqa: PERF401 - what was read before an error is kept
        return b"".join(chunks).decode(errors="replace")

    async def _deployments(self) -> Sequence[JsonObject] | None:
        """Those in all namespaces, or in the usual one."""
        selectors = (Selector(label_selector=_OPERATORS), Selector(namespace=self.home, label_selector=_OPERATORS))
        for selector in selectors:
            with suppress(Forbidden):
                return (await self.cluster.list(_RAW_DEPLOYMENTS, selector)).items
        return None

    async def _credentials(self) -> Sequence[Finding]:
        certificate = self.server.client_certificate
        if self.server.credentials is not None:
            certificate = (await self.server.credentials.identity()).certificate
        return list(installation.check_client_certificate(certificate, self.clock.now()))

    async def _apis(self) -> Sequence[Finding]:
        groups = decode(await self.get("/apis"), dict).get("groups") or ()
        served = {version["groupVersion"] for group in groups for version in group["versions"]}
        return [installation.check_apis(served)]

    async def _of_deployment(self, deployment: JsonObject) -> Sequence[Finding]:
        home = deployment["metadata"]["namespace"]
        several = await asyncio.gather(
            self._permissions(deployment),
            self._metrics(home),
            self._published(home),
            self._queues(deployment),
            self._authority(home),
            self._budgets(deployment),
        )
        return [finding for findings in several for finding in findings]

    async def _permissions(self, deployment: JsonObject) -> Sequence[Finding]:
        home = deployment["metadata"]["namespace"]
        account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
        asked = list(questions(_namespaces(deployment, home), home))
        try:
            answers = await asyncio.gather(*(self._may(each, home, account) for each in asked))
        except Forbidden:
            return [Finding("ok", "account", "unknown what the operator may do: you may not create access reviews")]
        found: Answers = dict(zip(asked, answers, strict=True))
        return list(service_account_findings(f"{home}/{account}", found))

    async def _may(self, question: PermissionQuestion, home: str, account: str) -> bool:
        review = question.access_review
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"]
        subject = {"user": f"system:serviceaccount:{home}:{account}", "groups": groups}
        body = {**review, "kind": _REVIEWS.kind, "spec": {**review["spec"], **subject}}
        return bool((await self.cluster.create(_REVIEWS, body))["status"].get("allowed"))

    async def _metrics(self, home: str) -> Sequence[Finding]:
        selector = Selector(namespace=home, label_selector=_OPERATORS, field_selector="status.phase=Running")
        pods = await _or_none(self.cluster.list(PODS.with_model(dict), selector))
        if pods is None:
            return [Finding("ok", "metrics", f"unknown: you may not list pods in {home}")]
        scraped = await asyncio.gather(*map(self._scraped, pods.items))
        return list(installation.check_metrics(scraped))

    async def _scraped(self, pod: JsonObject) -> installation.ScrapedPod:
        home, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        ports = {each.get("name"): each["containerPort"] for each in installation.own_container(pod).get("ports") or ()}
        path = f"/api/v1/namespaces/{home}/pods/{name}:{ports.get('http', _METRICS_PORT)}/proxy/metrics"
        try:
            return installation.ScrapedPod(name=name, text=(await self.get(path)).decode(errors="replace"))
        except TarragonError as error:
            return installation.ScrapedPod(name=name, error=error.summary)

    async def _published(self, home: str) -> Sequence[Finding]:
        try:
            rules = await self._config_map(home, RULES_CONFIG_MAP)
            shares = await self._config_map(home, SHARES_CONFIG_MAP)
        except Forbidden:
            return [Finding("ok", "config", f"unknown: you may not read ConfigMaps in {home}")]
        return [installation.check_published(home, rules, shares)]

    async def _queues(self, deployment: JsonObject) -> Sequence[Finding]:
        """Check the queues file, if a ConfigMap has it: an invalid edit has no effect."""
        mounted = installation.mounted_config(deployment, "--queues")
        if mounted is None:
            return []
        name, key = mounted
        home = deployment["metadata"]["namespace"]
        data = await _or_none(self._config_map(home, name))
        return [installation.check_queues(f"{key} of ConfigMap {home}/{name}", (data or {}).get(key))]

    async def _config_map(self, home: str, name: str) -> JsonObject | None:
        with suppress(NotFound):
            return (await self.cluster.get(CONFIG_MAPS.with_model(dict), Key(home, name))).get("data") or {}
        return None

    async def _authority(self, home: str) -> Sequence[Finding]:
        secret = await _or_none(self.cluster.get(SECRETS.with_model(dict), Key(home, SECRET_NAME)))
        if secret is None:
            return []
        return [installation.check_progress_authority(secret, self.clock.now())]

    async def _budgets(self, deployment: JsonObject) -> Sequence[Finding]:
        selector = Selector(namespace=deployment["metadata"]["namespace"])
        budgets = await _or_none(self.cluster.list(_BUDGETS, selector))
        return [installation.check_disruption_budgets(deployment, None if budgets is None else budgets.items)]


async def _or_none(asked: Awaitable[T]) -> T | None:
    """The answer; None if it is forbidden, or there is no such object or kind."""
    try:
        return await asked
    except (Forbidden, NotFound):
        return None


def _namespaces(deployment: JsonObject, home: str) -> Sequence[str]:
    return list(_named_namespaces(installation.container_of(deployment).get("args") or (), home))


def _named_namespaces(arguments: Sequence[str], home: str) -> Iterator[str]:
    for each in arguments:
        option, _, value = each.partition("=")
        if option == "--namespace":
            yield home if value == "$(MY_POD_NAMESPACE)" else value
