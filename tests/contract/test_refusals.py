from __future__ import annotations

import asyncio
import itertools

import pytest

from tarragon.client.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from tarragon.client.port import Client, DeleteOptions, LogOptions, Selector
from tarragon.kube.core import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, PODS, SERVICES, Pod
from tarragon.kube.meta import Key, Resource
from tests.contract.conftest import Gadgets
from tests.contract.objects import PATIENCE, WHOLE_CONFIG_MAPS, Json, config_map, gadget, pod, watching

OTHER_UID = "00000000-0000-4000-8000-000000000000"
MEBIBYTE = 2**20


async def test_a_conflict_says_about_what(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    first = await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))
    await cluster.patch(gadgets, Key(namespace, "a"), {"spec": {"replicas": 2}})

    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict) as caught:
        await cluster.patch(gadgets, Key(namespace, "a"), {**stale, "spec": {"replicas": 3}})

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert caught.value.status["details"] == {"name": "a", "group": gadgets.group, "kind": "gadgets"}


@pytest.mark.parametrize("subresource", ["status", "scale"])
async def test_subresources_are_patched_under_the_same_condition(
    cluster: Client, namespace: str, gadgets: Gadgets, subresource: str
) -> None:
    first = await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))
    await cluster.patch(gadgets, Key(namespace, "a"), {"spec": {"replicas": 2}})

    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "status": {"replicas": 7}}
    with pytest.raises(Conflict):
        await cluster.patch(gadgets, Key(namespace, "a"), {**stale, "spec": {"replicas": 5}}, subresource=subresource)

    assert (await cluster.get(gadgets, Key(namespace, "a")))["spec"]["replicas"] == 2


async def test_a_version_of_a_namesake_that_is_gone_is_a_conflict_with_its_uid_too(
    cluster: Client, namespace: str
) -> None:
    old = (await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))).metadata
    await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    about_the_old = {"metadata": {"resourceVersion": old.resource_version, "uid": old.uid}, "data": {"x": "1"}}
    with pytest.raises(Conflict):
        await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), about_the_old)


async def test_a_uid_alone_that_is_not_the_objects_is_no_conflict_but_invalid(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    with pytest.raises(Invalid, match=r"metadata\.uid: Invalid value: .*: field is immutable"):
        await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"metadata": {"uid": OTHER_UID}})


async def test_a_uid_alone_is_no_condition_for_a_custom_status(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    """Kubernetes takes nothing but the status from such a patch, and the uid that it has is lost before any check."""
    await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))

    other = {"metadata": {"uid": OTHER_UID}, "status": {"replicas": 7}}
    found = await cluster.patch(gadgets, Key(namespace, "a"), other, subresource="status")

    assert found["status"]["replicas"] == 7
    assert found["metadata"]["uid"] != OTHER_UID


async def test_a_delete_of_another_uid_says_both(cluster: Client, namespace: str) -> None:
    made = await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    with pytest.raises(Conflict) as caught:
        await cluster.delete(CONFIG_MAPS, Key(namespace, "a"), DeleteOptions(uid=OTHER_UID))

    assert OTHER_UID in str(caught.value)
    assert made.metadata.uid in str(caught.value)


async def test_a_new_object_has_no_version_yet(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a")
    body["metadata"]["resourceVersion"] = "7"

    with pytest.raises(ApiError, match="resourceVersion should not be set on objects to be created") as caught:
        await cluster.create(CONFIG_MAPS, body)
    assert (caught.value.code, caught.value.reason) == (500, "")
    assert "details" not in caught.value.status


async def test_the_version_of_a_new_object_is_refused_after_all_else_but_before_a_namesake(
    cluster: Client, namespace: str
) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "there"))
    for name, expected in (("Z_Z", 422), ("there", 500)):
        body = config_map(namespace, name)
        body["metadata"]["resourceVersion"] = "7"

        with pytest.raises(ApiError) as caught:
            await cluster.create(CONFIG_MAPS, body)
        assert caught.value.code == expected


@pytest.mark.parametrize(
    "version", ["", "0", "00", "abc", "-1", "+1", " 1", "1_0", "18446744073709551616", "9" * 5000, "\u0661"]
)
async def test_what_is_no_version_does_not_keep_a_new_object_away(
    cluster: Client, namespace: str, gadgets: Gadgets, version: str
) -> None:
    plain, custom = config_map(namespace, "a"), gadget(gadgets, namespace, "a", replicas=1)
    for body in (plain, custom):
        body["metadata"]["resourceVersion"] = version

    assert (await cluster.create(CONFIG_MAPS, plain)).metadata.resource_version.isdigit()
    assert (await cluster.create(gadgets, custom))["metadata"]["resourceVersion"] not in {"", version}


async def test_marks_of_a_life_are_not_taken_from_a_new_objects_body(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a")
    body["metadata"] |= {"uid": OTHER_UID, "deletionTimestamp": "2001-01-01T00:00:00Z", "generation": 9}

    made = await cluster.create(CONFIG_MAPS, body)

    assert made.metadata.uid != OTHER_UID
    assert not made.metadata.is_being_deleted


async def test_an_object_needs_a_name(cluster: Client, namespace: str) -> None:
    with pytest.raises(Invalid, match="name or generateName is required"):
        await cluster.create(CONFIG_MAPS, {"metadata": {"namespace": namespace}})


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"labels": {"a": "b c"}}, "metadata.labels"),
        ({"labels": {"a": "x" * 64}}, "metadata.labels"),
        ({"labels": {"größe": "1"}}, "metadata.labels"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"annotations": {"a": "x" * 262_144}}, "metadata.annotations"),
        ({"finalizers": ["not a name"]}, "metadata.finalizers"),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}, "metadata.ownerReferences[0].uid"),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "p", "uid": "1"}]}, "ownerReferences[0].kind"),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in "ab"
                ]
            },
            "metadata.ownerReferences",
        ),
    ],
)
async def test_metadata_that_breaks_the_rules_is_invalid(
    cluster: Client, namespace: str, gadgets: Gadgets, metadata: dict[str, object], field: str
) -> None:
    await cluster.create(gadgets, gadget(gadgets, namespace, "a"))

    with pytest.raises(Invalid) as caught:
        await cluster.patch(gadgets, Key(namespace, "a"), {"metadata": metadata})

    assert any(field in cause["field"] for cause in caught.value.causes)


async def test_nothing_new_comes_into_a_namespace_that_is_ending(cluster: Client, namespace: str) -> None:
    held = config_map(namespace, "held")
    held["metadata"]["finalizers"] = ["example.com/later"]
    await cluster.create(CONFIG_MAPS, held)
    await cluster.delete(NAMESPACES, Key("", namespace))

    with pytest.raises(Forbidden) as caught:
        await cluster.create(PODS, pod(namespace, "late"))
    changed = await cluster.patch(WHOLE_CONFIG_MAPS, Key(namespace, "held"), {"data": {"x": "1"}})
    await cluster.patch(CONFIG_MAPS, Key(namespace, "held"), {"metadata": {"finalizers": None}})

    assert [cause["reason"] for cause in caught.value.causes] == ["NamespaceTerminating"]
    assert "because it is being terminated" in str(caught.value)
    assert changed["data"] == {"x": "1"}


async def test_a_subresource_that_a_kind_lacks_is_not_found(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    with pytest.raises(NotFound):
        await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"data": {}}, subresource="status")


async def test_a_config_map_holds_a_mebibyte_at_most(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "full", x="x" * (MEBIBYTE - 1)))

    with pytest.raises(Invalid, match=r"Too long: (must have at most|may not be more than) 1048576"):
        await cluster.create(CONFIG_MAPS, config_map(namespace, "more", x="x" * MEBIBYTE, y="y"))


async def test_an_object_too_large_for_the_store_is_refused(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    await cluster.create(gadgets, gadget(gadgets, namespace, "large", free={"x": "x" * MEBIBYTE}))

    with pytest.raises(ApiError, match="etcdserver: request is too large") as caught:
        await cluster.create(gadgets, gadget(gadgets, namespace, "larger", free={"x": "x" * (MEBIBYTE * 7 // 4)}))

    assert caught.value.code == 500


async def test_a_custom_kind_is_selected_by_name_and_by_nothing_of_its_own(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    for name in ("a", "b"):
        await cluster.create(gadgets, gadget(gadgets, namespace, name, mode="fast"))

    found = await cluster.list(gadgets, Selector(namespace, field_selector="metadata.name=b"))
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.mode"):
        await cluster.list(gadgets, Selector(namespace, field_selector="spec.mode=fast"))

    assert [one["metadata"]["name"] for one in found.items] == ["b"]


async def test_two_who_want_one_lease_get_it_once(cluster: Client, namespace: str) -> None:
    lease = LEASES.with_model(dict)
    body: Json = {
        "metadata": {"name": "l", "namespace": namespace},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.678901Z"},
    }
    made = await cluster.create(lease, body)
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}

    won = await cluster.patch(lease, Key(namespace, "l"), {"metadata": version, "spec": {"holderIdentity": "one"}})
    with pytest.raises(Conflict):
        await cluster.patch(lease, Key(namespace, "l"), {"metadata": version, "spec": {"holderIdentity": "two"}})

    assert won["spec"] == {**body["spec"], "holderIdentity": "one"}


@pytest.mark.parametrize(("field", "value"), [("leaseDurationSeconds", 0), ("leaseTransitions", -1)])
async def test_a_lease_of_impossible_numbers_is_invalid(
    cluster: Client, namespace: str, field: str, value: int
) -> None:
    with pytest.raises(Invalid, match=field):
        await cluster.create(LEASES, {"metadata": {"name": "l", "namespace": namespace}, "spec": {field: value}})


async def test_a_services_port_is_a_port(cluster: Client, namespace: str) -> None:
    body = {"metadata": {"name": "s", "namespace": namespace}, "spec": {"clusterIP": "None", "ports": [{"port": 0}]}}

    with pytest.raises(Invalid, match="must be between 1 and 65535"):
        await cluster.create(SERVICES, body)


async def test_an_event_of_a_wrong_type_is_kept_as_it_is(cluster: Client, namespace: str) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": namespace}
    body = {"metadata": {"name": "e", "namespace": namespace}, "involvedObject": about, "type": "Odd", "count": 3}

    made = await cluster.create(EVENTS.with_model(dict), body)

    assert (made["type"], made["count"]) == ("Odd", 3)


async def test_the_log_of_a_pod_that_is_not_there_is_not_found(cluster: Client, namespace: str) -> None:
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        await _log(cluster, Key(namespace, "nobody"))


@pytest.mark.parametrize(
    ("containers", "container", "words"),
    [
        (["main"], "other", "container other is not valid for pod a"),
        (["one", "two"], "", "a container name must be specified for pod a, choose one of: \\[one two\\]"),
    ],
)
async def test_a_log_that_cannot_be_is_a_bad_request(
    cluster: Client, namespace: str, containers: list[str], container: str, words: str
) -> None:
    body = pod(namespace, "a", schedulerName="nobody")
    body["spec"]["containers"] = [{"name": name, "image": "i"} for name in containers]
    await cluster.create(PODS, body)

    with pytest.raises(BadRequest, match=words):
        await _log(cluster, Key(namespace, "a"), LogOptions(container=container))


async def test_the_log_of_a_pod_that_no_node_has_is_empty(cluster: Client, namespace: str) -> None:
    await cluster.create(PODS, pod(namespace, "a", schedulerName="nobody"))

    assert await _log(cluster, Key(namespace, "a")) == b""


async def _log(cluster: Client, key: Key, options: LogOptions | None = None) -> bytes:
    return b"".join([chunk async for chunk in cluster.pod_log(key, options or LogOptions())])


async def _created_once_known(cluster: Client, body: Json) -> Pod:
    """A real server's admission hears of a class by a watch of its own, some time after the class was stored."""
    refused: list[Forbidden] = []

    async def made() -> Pod | None:
        try:
            return await cluster.create(PODS, body)
        except Forbidden as error:
            refused[:] = [error]
            return None

    async with asyncio.timeout(PATIENCE):
        while (pod := await made()) is None:
            assert "no PriorityClass" in str(refused[0])
            await asyncio.sleep(0.01)  # noqa: TID251 - a server's admission tells nobody what it has heard of
    return pod


async def test_what_a_quota_does_not_allow_is_forbidden_and_says_which(cluster: Client, namespace: str) -> None:
    quotas = Resource(group="", version="v1", plural="resourcequotas", kind="ResourceQuota", model=dict)
    chosen = Selector(namespace, field_selector="metadata.name=small")
    body = {"metadata": {"name": "small", "namespace": namespace}, "spec": {"hard": {"pods": "1"}}}
    made = await cluster.create(quotas, body)
    async with watching(cluster, quotas, chosen, made["metadata"]["resourceVersion"]) as seen:
        while (await seen.next())[1].get("status", {}).get("hard") != {"pods": "1"}:
            pass
    await _counted(cluster, namespace, quotas)

    with pytest.raises(Forbidden, match="exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"):
        await cluster.create(PODS, pod(namespace, "two", schedulerName="nobody"))


async def _counted(cluster: Client, namespace: str, quotas: Resource[Json]) -> None:
    """Make the pod that counts. A real server's admission hears of a quota by a watch of its own, later than we do."""
    numbers = itertools.count()
    async with asyncio.timeout(PATIENCE):
        while (await cluster.get(quotas, Key(namespace, "small")))["status"]["used"] != {"pods": "1"}:
            await cluster.create(PODS, pod(namespace, f"one-{next(numbers)}", schedulerName="nobody"))


async def test_a_pod_has_the_priority_of_its_class_and_no_class_that_is_not_there(
    cluster: Client, namespace: str
) -> None:
    classes = Resource(
        group="scheduling.k8s.io", version="v1", plural="priorityclasses", kind="PriorityClass", model=dict,
        namespaced=False,
    )  # fmt: skip
    await cluster.create(classes, {"metadata": {"name": namespace}, "value": 1000})

    made = await _created_once_known(cluster, pod(namespace, "a", schedulerName="nobody", priorityClassName=namespace))
    plain = await cluster.create(PODS, pod(namespace, "b", schedulerName="nobody"))
    with pytest.raises(Forbidden, match="no PriorityClass with name none-such was found"):
        await cluster.create(PODS, pod(namespace, "c", schedulerName="nobody", priorityClassName="none-such"))
    await cluster.delete(classes, Key("", namespace))

    assert (made.spec.priority, plain.spec.priority) == (1000, 0)
