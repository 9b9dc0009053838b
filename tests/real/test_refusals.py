"""What a real API server does not let a job make or keep, and what becomes of the job."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import parse_time
from tarragon.kube.core import NAMESPACES, PODS, SERVICES
from tarragon.kube.meta import Resource
from tarragon.operator.rbac import permissions
from tarragon.plan.objects.settings import OperatorSettings
from tests.real.environment import PATIENCE, TFJOBS, OperatorEnvironment, an_environment, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
QUOTAS = Resource(group="", version="v1", plural="resourcequotas", kind="ResourceQuota", model=dict)
ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    model=dict,
    namespaced=False,
)
LIMITS = Resource(group="", version="v1", plural="limitranges", kind="LimitRange", model=dict)
ROLES = Resource(group=RBAC, version="v1", plural="clusterroles", kind="ClusterRole", model=dict, namespaced=False)
BINDINGS = Resource(
    group=RBAC, version="v1", plural="clusterrolebindings", kind="ClusterRoleBinding", model=dict, namespaced=False
)
WEBHOOKS = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    model=dict,
    namespaced=False,
)
SHORT = OperatorSettings(creation_timeout=2)


async def quota(env: OperatorEnvironment, pods: int) -> None:
    await env.create(QUOTAS, "few", spec={"hard": {"pods": str(pods)}})
    # It holds nobody back before the quota controller has counted what is there.
    await env.until_there_is(QUOTAS, "few", lambda found: bool(found.get("status", {}).get("used")))


async def raised(env: OperatorEnvironment, pods: int) -> None:
    await env.patch(QUOTAS, "few", {"spec": {"hard": {"pods": str(pods)}}})


async def test_a_quota_in_the_middle_of_a_gang_gives_everything_back_and_lets_it_start_once_it_is_raised(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "quota") as env:
        await env.node("n", cpu="3")
        await quota(env, 2)
        env.start_operator(SHORT)
        wanted: Json = {"nodeSelector": {"test-env": env.namespace}}
        await env.submit("gang", PS=group(1, **wanted), Worker=group(2, **wanted))
        await env.until(lambda: len(env.pods) == 2 and env.condition("gang", "Blocked") is not None)
        blocked = env.condition("gang", "Blocked")
        assert blocked is not None
        assert blocked.reason == "Refused"
        assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in blocked.message

        await env.submit("behind", Worker=group(1, **wanted))
        await env.until(lambda: env.waits_for("gang") == "Refused")
        await env.until_phase("behind", "Running")
        await env.until(lambda: set(env.pods) == {"behind-worker-0"})

        await raised(env, 5)
        await env.ends("behind-worker-0")
        await env.until(lambda: env.status("gang").running_replicas == 3)
        assert env.condition("gang", "Blocked") is None
        assert env.phase("gang") == "Running"
        assert hasty(env.asked("create", "pods", 201), SHORT.creation_timeout) == []


async def test_an_elastic_job_that_may_not_grow_goes_on_as_it_is_and_says_why(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "growth") as env:
        await env.node("n")
        await quota(env, 3)
        env.start_operator(SHORT)
        elastic = {"min-instances": 1, "max-instances": 4}
        await env.submit("a", PS=group(1), Worker=group(4), **elastic)
        await env.until(lambda: "a-worker-0" in env.pods and env.status("a").running_replicas == 3)
        before = {name: pod["metadata"]["uid"] for name, pod in env.pods.items()}
        await env.until(lambda: "3 of 3 replicas are scheduled; can't grow:" in told(env, "a", "Admitted"))
        assert "exceeded quota" in told(env, "a", "Admitted")
        assert {name: pod["metadata"]["uid"] for name, pod in env.pods.items()} == before

        await raised(env, 10)
        await env.until(lambda: env.status("a").running_replicas == 5)
        assert {name: env.pods[name]["metadata"]["uid"] for name in before} == before


async def test_a_limit_that_no_pod_of_a_gang_meets_is_told_and_tried_ever_more_seldom(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "limits") as env:
        await env.node("n")
        await env.create(LIMITS, "small", spec={"limits": [{"type": "Container", "max": {"cpu": "500m"}}]})
        env.start_operator(SHORT)
        await env.submit("a", Worker=group(2, c={"resources": {"limits": {"cpu": "1"}}}))
        await env.until(lambda: env.waits_for("a") == "Refused")
        await env.until(lambda: "maximum cpu usage per Container is 500m" in told(env, "a", "Admitted"))

        # The server knows the new limit a moment after it is written, and the job rests meanwhile.
        await env.delete(LIMITS, "small")
        await env.until(lambda: env.status("a").running_replicas == 2)
        assert hasty(env.asked("create", "pods", 403), 1.0) == []


async def test_a_webhook_that_does_not_answer_is_named_and_costs_nobody_else_the_room(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "webhook") as env:
        await env.node("n", cpu="1")
        await env.patch(NAMESPACES, env.namespace, {"metadata": {"labels": {"test-env": env.namespace}}})
        await env.create(WEBHOOKS, env.name("dead"), webhooks=[dead_webhook(env)])
        env.start_operator(SHORT)
        wanted: Json = {"nodeSelector": {"test-env": env.namespace}}
        await env.submit("a", Worker=group(1, **wanted))
        await env.until(lambda: env.waits_for("a") == "Refused")
        await env.until(lambda: 'failed calling webhook "dead.example.org"' in told(env, "a", "Admitted"))

        await env.delete(WEBHOOKS, env.name("dead"))
        await env.until_phase("a", "Running")
        assert env.made() == {"a-worker-0": 1}


async def test_permissions_that_are_withdrawn_stop_new_pods_only_and_given_back_let_all_go_on(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "withdrawn") as env:
        await env.node("n")
        user = env.name("operator")
        rules = [
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [verb]}
            for each in permissions()
            for verb in each.verbs
        ]
        making = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
        await grant(env, "others", user, [rule for rule in rules if rule != making])
        await grant(env, "making", user, [making])
        env.start_operator(SHORT, config=control_plane.user(user))
        await env.submit("before", Worker=group(2, nodeSelector={"test-env": env.namespace}))
        await env.until(lambda: env.status("before").running_replicas == 2)

        await env.delete(BINDINGS, env.name("making"))
        await until_denied(env, user)
        await env.submit("after", Worker=group(1, nodeSelector={"test-env": env.namespace}))
        await env.until(lambda: env.waits_for("after") == "Refused")
        await env.until(lambda: 'cannot create resource "pods"' in told(env, "after", "Admitted"))
        assert env.phase("before") == "Running"

        await bind(env, "making", user)
        await env.until_phase("after", "Running")
        assert set(env.made().values()) == {1}


async def test_an_operator_that_may_do_nothing_for_a_while_goes_on_where_it_was(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "nothing") as env:
        await env.node("n")
        user = env.name("operator")
        rules = [
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [*each.verbs]} for each in permissions()
        ]
        await grant(env, "all", user, rules)
        env.start_operator(SHORT, config=control_plane.user(user))
        await env.submit("before", Worker=group(2))
        await env.until(lambda: env.status("before").running_replicas == 2)

        await env.delete(BINDINGS, env.name("all"))
        await until_denied(env, user)
        await env.submit("after", PS=group(1), Worker=group(1))
        await env.ends("before-worker-0")
        # Its watches were begun while it was allowed to, so it sees what it may not write about.
        await env.until_asked("patch", "tfjobs", 403)
        assert env.phase("before") == "Running"

        await bind(env, "all", user)
        await env.until_phase("before", "Succeeded")
        await env.until(lambda: env.status("after").running_replicas == 2)
        assert set(env.made().values()) == {1}


async def test_a_job_that_is_deleted_in_the_foreground_makes_nothing_new_and_goes_after_its_pods(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "foreground") as env:
        await env.node("n")
        env.start_operator()
        await env.submit("a", PS=group(1), Worker=group(2))
        await env.until(lambda: env.status("a").running_replicas == 3)
        await env.delete(TFJOBS, "a", DeleteOptions(propagation_policy="Foreground"))
        await env.until(lambda: not env.pods)
        await env.until(lambda: not env.is_there("a"))

        assert set(env.made().values()) == {1}
        await env.until_gone(SERVICES, "a-worker-0")


async def test_orphans_keep_their_names_until_they_are_gone(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "orphans") as env:
        await env.node("n")
        env.start_operator()
        await env.submit("a", Worker=group(1))
        await env.until_phase("a", "Running")
        await env.delete(TFJOBS, "a", DeleteOptions(propagation_policy="Orphan"))
        await env.until(lambda: not env.is_there("a"))
        await env.until(lambda: "ownerReferences" not in env.pods["a-worker-0"]["metadata"])
        orphan = env.pods["a-worker-0"]["metadata"]["uid"]

        await env.submit("a", Worker=group(1))
        await env.until(lambda: "objects of other owners already use the names a-worker-0" in told(env, "a", "Blocked"))
        assert env.pods["a-worker-0"]["metadata"]["uid"] == orphan

        await env.delete(PODS, "a-worker-0")
        await env.delete(SERVICES, "a-worker-0")
        await env.until_phase("a", "Running")
        assert env.pods["a-worker-0"]["metadata"]["uid"] != orphan


async def test_nothing_is_made_at_speed_in_a_namespace_that_is_ending(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "ending") as env:
        await env.node("n")
        env.start_operator()
        await env.submit("a", PS=group(1), Worker=group(4))
        await env.until(lambda: env.status("a").running_replicas == 5)
        # Its job stays for a while, so that there is somebody who misses the pods.
        await env.patch(TFJOBS, "a", {"metadata": {"finalizers": ["example.org/slow"]}})
        await env.delete(NAMESPACES, env.namespace)
        await env.until(lambda: not env.pods)
        await env.patch(TFJOBS, "a", {"metadata": {"finalizers": None}})
        await env.until_gone(NAMESPACES, env.namespace)

        assert set(env.made().values()) == {1}
        assert hasty(env.asked("create", "pods", 403), 1.0) == []


def hasty(requests: Sequence[Json], first: float) -> list[tuple[str, float]]:
    """What was asked for again too early: of each pod, a pause must be twice as long as the last, or half a minute."""
    times: dict[str, list[dt.datetime]] = {}
    for request in requests:
        times.setdefault(request["objectRef"]["name"], []).append(parse_time(request["requestReceivedTimestamp"]))
    return [
        (name, pause)
        for name, found in times.items()
        for number, (last, again) in enumerate(pairwise(sorted(found)))
        if (pause := (again - last).total_seconds()) < min(first * 2**number, 30)
    ]


def dead_webhook(env: OperatorEnvironment) -> Json:
    """Nobody listens at port 1."""
    return {
        "name": "dead.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"test-env": env.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }


async def grant(env: OperatorEnvironment, word: str, user: str, rules: list[Json]) -> None:
    await env.create(ROLES, env.name(word), rules=rules)
    await bind(env, word, user)


async def bind(env: OperatorEnvironment, word: str, user: str) -> None:
    name = env.name(word)
    await env.create(
        BINDINGS,
        name,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        subjects=[{"apiGroup": RBAC, "kind": "User", "name": user}],
    )


async def until_denied(env: OperatorEnvironment, user: str) -> None:
    """To make pods. What a role allowed is allowed a moment longer."""
    wish = {"namespace": env.namespace, "verb": "create", "resource": "pods"}
    review = {"spec": {"user": user, "resourceAttributes": wish}}
    async with asyncio.timeout(PATIENCE):
        while (await env.http.create(ACCESS_REVIEWS, review))["status"]["allowed"]:
            continue


def told(env: OperatorEnvironment, name: str, kind: str) -> str:
    condition = env.condition(name, kind)
    return "" if condition is None else condition.message
