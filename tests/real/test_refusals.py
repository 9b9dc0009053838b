"""What a real API server does not let a job make or keep, and what becomes of the job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarragon.client.port import DeleteOptions
from tarragon.kube.core import NAMESPACES, PODS, SERVICES
from tarragon.kube.meta import Resource
from tarragon.operator.rbac import permissions
from tarragon.plan.objects.settings import OperatorSettings
from tests.real.ground import PATIENCE, TFJOBS, Ground, a_ground, group
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


async def quota(ground: Ground, pods: int) -> None:
    await ground.create(QUOTAS, "few", spec={"hard": {"pods": str(pods)}})
    # It holds nobody back before the quota controller has counted what is there.
    await ground.until_there_is(QUOTAS, "few", lambda found: bool(found.get("status", {}).get("used")))


async def raised(ground: Ground, pods: int) -> None:
    await ground.patch(QUOTAS, "few", {"spec": {"hard": {"pods": str(pods)}}})


async def test_a_quota_in_the_middle_of_a_gang_gives_everything_back_and_lets_it_start_once_it_is_raised(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "quota") as ground:
        await ground.node("n", cpu="3")
        await quota(ground, 2)
        ground.start_operator(SHORT)
        wanted: Json = {"nodeSelector": {"ground": ground.namespace}}
        await ground.submit("gang", PS=group(1, **wanted), Worker=group(2, **wanted))
        await ground.until(lambda: len(ground.pods) == 2 and ground.condition("gang", "Blocked") is not None)
        blocked = ground.condition("gang", "Blocked")
        assert blocked is not None
        assert blocked.reason == "Refused"
        assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in blocked.message

        await ground.submit("behind", Worker=group(1, **wanted))
        await ground.until(lambda: ground.waits_for("gang") == "Refused")
        await ground.until_phase("behind", "Running")
        await ground.until(lambda: set(ground.pods) == {"behind-worker-0"})

        await raised(ground, 5)
        await ground.ends("behind-worker-0")
        await ground.until(lambda: ground.status("gang").running_replicas == 3)
        assert ground.condition("gang", "Blocked") is None
        assert ground.phase("gang") == "Running"
        tries = ground.made()
        assert max(tries.values()) <= 4, tries


async def test_an_elastic_job_that_may_not_grow_goes_on_as_it_is_and_says_why(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "growth") as ground:
        await ground.node("n")
        await quota(ground, 3)
        ground.start_operator(SHORT)
        elastic = {"min-instances": 1, "max-instances": 4}
        await ground.submit("a", PS=group(1), Worker=group(4), **elastic)
        await ground.until(lambda: "a-worker-0" in ground.pods and ground.status("a").running_replicas == 3)
        before = {name: pod["metadata"]["uid"] for name, pod in ground.pods.items()}
        await ground.until(lambda: "3 of 3 replicas are scheduled; can't grow:" in told(ground, "a", "Admitted"))
        assert "exceeded quota" in told(ground, "a", "Admitted")
        assert {name: pod["metadata"]["uid"] for name, pod in ground.pods.items()} == before

        await raised(ground, 10)
        await ground.until(lambda: ground.status("a").running_replicas == 5)
        assert {name: ground.pods[name]["metadata"]["uid"] for name in before} == before


async def test_a_limit_that_no_pod_of_a_gang_meets_is_told_and_tried_ever_more_seldom(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "limits") as ground:
        await ground.node("n")
        await ground.create(LIMITS, "small", spec={"limits": [{"type": "Container", "max": {"cpu": "500m"}}]})
        ground.start_operator(SHORT)
        await ground.submit("a", Worker=group(2, c={"resources": {"limits": {"cpu": "1"}}}))
        await ground.until(lambda: ground.waits_for("a") == "Refused")
        await ground.until(lambda: "maximum cpu usage per Container is 500m" in told(ground, "a", "Admitted"))

        # The server knows the new limit a moment after it is written, and the job rests meanwhile.
        await ground.delete(LIMITS, "small")
        await ground.until(lambda: ground.status("a").running_replicas == 2)
        assert len(ground.asked("create", "pods", 403)) <= 12


async def test_a_webhook_that_does_not_answer_is_named_and_costs_nobody_else_the_room(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "webhook") as ground:
        await ground.node("n", cpu="1")
        await ground.patch(NAMESPACES, ground.namespace, {"metadata": {"labels": {"ground": ground.namespace}}})
        await ground.create(WEBHOOKS, ground.name("dead"), webhooks=[dead_webhook(ground)])
        ground.start_operator(SHORT)
        wanted: Json = {"nodeSelector": {"ground": ground.namespace}}
        await ground.submit("a", Worker=group(1, **wanted))
        await ground.until(lambda: ground.waits_for("a") == "Refused")
        await ground.until(lambda: 'failed calling webhook "dead.example.org"' in told(ground, "a", "Admitted"))

        await ground.delete(WEBHOOKS, ground.name("dead"))
        await ground.until_phase("a", "Running")
        assert ground.made() == {"a-worker-0": 1}


async def test_permissions_that_are_withdrawn_stop_new_pods_only_and_given_back_let_all_go_on(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "withdrawn") as ground:
        await ground.node("n")
        user = ground.name("operator")
        rules = [
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [verb]}
            for each in permissions()
            for verb in each.verbs
        ]
        making = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
        await grant(ground, "others", user, [rule for rule in rules if rule != making])
        await grant(ground, "making", user, [making])
        ground.start_operator(SHORT, config=control_plane.user(user))
        await ground.submit("before", Worker=group(2, nodeSelector={"ground": ground.namespace}))
        await ground.until(lambda: ground.status("before").running_replicas == 2)

        await ground.delete(BINDINGS, ground.name("making"))
        await until_denied(ground, user)
        await ground.submit("after", Worker=group(1, nodeSelector={"ground": ground.namespace}))
        await ground.until(lambda: ground.waits_for("after") == "Refused")
        await ground.until(lambda: 'cannot create resource "pods"' in told(ground, "after", "Admitted"))
        assert ground.phase("before") == "Running"

        await bind(ground, "making", user)
        await ground.until_phase("after", "Running")
        assert set(ground.made().values()) == {1}


async def test_an_operator_that_may_do_nothing_for_a_while_goes_on_where_it_was(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "nothing") as ground:
        await ground.node("n")
        user = ground.name("operator")
        rules = [
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [*each.verbs]} for each in permissions()
        ]
        await grant(ground, "all", user, rules)
        ground.start_operator(SHORT, config=control_plane.user(user))
        await ground.submit("before", Worker=group(2))
        await ground.until(lambda: ground.status("before").running_replicas == 2)

        await ground.delete(BINDINGS, ground.name("all"))
        await until_denied(ground, user)
        await ground.submit("after", PS=group(1), Worker=group(1))
        await ground.ends("before-worker-0")
        # Its watches were begun while it was allowed to, so it sees what it may not write about.
        await ground.until_asked("patch", "tfjobs", 403)
        assert ground.phase("before") == "Running"

        await bind(ground, "all", user)
        await ground.until_phase("before", "Succeeded")
        await ground.until(lambda: ground.status("after").running_replicas == 2)
        assert set(ground.made().values()) == {1}


async def test_a_job_that_is_deleted_in_the_foreground_makes_nothing_new_and_goes_after_its_pods(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "foreground") as ground:
        await ground.node("n")
        ground.start_operator()
        await ground.submit("a", PS=group(1), Worker=group(2))
        await ground.until(lambda: ground.status("a").running_replicas == 3)
        await ground.delete(TFJOBS, "a", DeleteOptions(propagation_policy="Foreground"))
        await ground.until(lambda: not ground.pods)
        await ground.until(lambda: not ground.is_there("a"))

        assert set(ground.made().values()) == {1}
        await ground.until_gone(SERVICES, "a-worker-0")


async def test_orphans_keep_their_names_until_they_are_gone(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "orphans") as ground:
        await ground.node("n")
        ground.start_operator()
        await ground.submit("a", Worker=group(1))
        await ground.until_phase("a", "Running")
        await ground.delete(TFJOBS, "a", DeleteOptions(propagation_policy="Orphan"))
        await ground.until(lambda: not ground.is_there("a"))
        await ground.until(lambda: "ownerReferences" not in ground.pods["a-worker-0"]["metadata"])
        orphan = ground.pods["a-worker-0"]["metadata"]["uid"]

        await ground.submit("a", Worker=group(1))
        await ground.until(
            lambda: "objects of other owners already use the names a-worker-0" in told(ground, "a", "Blocked")
        )
        assert ground.pods["a-worker-0"]["metadata"]["uid"] == orphan

        await ground.delete(PODS, "a-worker-0")
        await ground.delete(SERVICES, "a-worker-0")
        await ground.until_phase("a", "Running")
        assert ground.pods["a-worker-0"]["metadata"]["uid"] != orphan


async def test_nothing_is_made_at_speed_in_a_namespace_that_is_ending(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "ending") as ground:
        await ground.node("n")
        ground.start_operator()
        await ground.submit("a", PS=group(1), Worker=group(4))
        await ground.until(lambda: ground.status("a").running_replicas == 5)
        # Its job stays for a while, so that there is somebody who misses the pods.
        await ground.patch(TFJOBS, "a", {"metadata": {"finalizers": ["example.org/slow"]}})
        await ground.delete(NAMESPACES, ground.namespace)
        await ground.until(lambda: not ground.pods)
        await ground.patch(TFJOBS, "a", {"metadata": {"finalizers": None}})
        await ground.until_gone(NAMESPACES, ground.namespace)

        assert set(ground.made().values()) == {1}
        assert len(ground.asked("create", "pods", 403)) <= 12


def dead_webhook(ground: Ground) -> Json:
    """Nobody listens at port 1."""
    return {
        "name": "dead.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"ground": ground.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }


async def grant(ground: Ground, word: str, user: str, rules: list[Json]) -> None:
    await ground.create(ROLES, ground.name(word), rules=rules)
    await bind(ground, word, user)


async def bind(ground: Ground, word: str, user: str) -> None:
    name = ground.name(word)
    await ground.create(
        BINDINGS,
        name,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        subjects=[{"apiGroup": RBAC, "kind": "User", "name": user}],
    )


async def until_denied(ground: Ground, user: str) -> None:
    """To make pods. What a role allowed is allowed a moment longer."""
    wish = {"namespace": ground.namespace, "verb": "create", "resource": "pods"}
    review = {"spec": {"user": user, "resourceAttributes": wish}}
    async with asyncio.timeout(PATIENCE):
        while (await ground.http.create(ACCESS_REVIEWS, review))["status"]["allowed"]:
            continue


def told(ground: Ground, name: str, kind: str) -> str:
    condition = ground.condition(name, kind)
    return "" if condition is None else condition.message
