from __future__ import annotations

import asyncio
import copy

import pytest

from tarragon.client.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import CONFIG_MAPS, EVENTS, PODS
from tarragon.kube.meta import CustomObject, Key, Resource
from tests.contract.objects import WHOLE_CONFIG_MAPS, WHOLE_PODS, Json, config_map, pod, watching


async def test_what_is_created_can_be_read(cluster: Client, namespace: str) -> None:
    created = await cluster.create(WHOLE_CONFIG_MAPS, config_map(namespace, "a", colour="red"))
    read = await cluster.get(WHOLE_CONFIG_MAPS, Key(namespace, "a"))

    assert created == read
    assert read["data"] == {"colour": "red"}
    assert (read["apiVersion"], read["kind"]) == ("v1", "ConfigMap")
    metadata = read["metadata"]
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")


async def test_creating_leaves_the_body_alone(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a", colour="red")
    before = copy.deepcopy(body)

    await cluster.create(CONFIG_MAPS, body)

    assert body == before


async def test_a_missing_object_is_not_found(cluster: Client, namespace: str) -> None:
    with pytest.raises(NotFound, match='pods "nobody" not found') as caught:
        await cluster.get(PODS, Key(namespace, "nobody"))

    assert caught.value.status["details"] == {"name": "nobody", "kind": "pods"}


async def test_a_kind_that_is_not_served_is_not_found(cluster: Client, namespace: str) -> None:
    nothing = Resource(group="nothing.example.com", version="v1", plural="voids", kind="Void", model=dict)

    with pytest.raises(NotFound):
        await cluster.get(nothing, Key(namespace, "a"))


async def test_a_name_is_given_once(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    with pytest.raises(AlreadyExists, match='configmaps "a" already exists'):
        await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))


async def test_a_generated_name_begins_as_asked_and_is_new_each_time(cluster: Client, namespace: str) -> None:
    body = {"metadata": {"generateName": "run-", "namespace": namespace}}

    names = {(await cluster.create(CONFIG_MAPS, body)).metadata.name for _ in range(5)}

    assert len(names) == 5
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


async def test_nothing_is_created_in_a_namespace_that_does_not_exist(cluster: Client) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await cluster.create(CONFIG_MAPS, config_map("nowhere", "a"))


async def test_every_fault_of_an_object_is_told_with_its_place(cluster: Client, namespace: str) -> None:
    body = pod(namespace, "Bad_Name")
    body["spec"]["containers"] = [{"name": "main"}]
    body["metadata"]["labels"] = {"a b": "c"}

    with pytest.raises(Invalid) as caught:
        await cluster.create(PODS, body)

    fields = {cause["field"] for cause in caught.value.causes}
    assert fields == {"metadata.name", "metadata.labels", "spec.containers[0].image"}
    assert caught.value.code == 422


async def test_an_object_of_wrong_types_is_a_bad_request(cluster: Client, namespace: str) -> None:
    body = pod(namespace, "a")
    body["spec"]["containers"] = "none"

    with pytest.raises(BadRequest):
        await cluster.create(PODS, body)


async def test_a_merge_patch_sets_replaces_and_removes(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a", kept="1", replaced="2", removed="3"))

    patch = {"data": {"replaced": "two", "removed": None, "new": "4"}}
    patched = await cluster.patch(WHOLE_CONFIG_MAPS, Key(namespace, "a"), patch)

    assert patched["data"] == {"kept": "1", "replaced": "two", "new": "4"}
    assert await cluster.get(WHOLE_CONFIG_MAPS, Key(namespace, "a")) == patched


async def test_a_patch_that_changes_nothing_leaves_the_version(cluster: Client, namespace: str) -> None:
    created = await cluster.create(CONFIG_MAPS, config_map(namespace, "a", colour="red"))
    patched = await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"data": {"colour": "red"}})

    assert patched.metadata.resource_version == created.metadata.resource_version


async def test_versions_grow(cluster: Client, namespace: str) -> None:
    first = await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
    other = await cluster.create(CONFIG_MAPS, config_map(namespace, "b"))
    second = await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"data": {"x": "1"}})

    versions = [int(one.metadata.resource_version) for one in (first, other, second)]
    assert versions == sorted(set(versions))


async def test_a_patch_of_an_older_version_is_a_conflict(cluster: Client, namespace: str) -> None:
    created = await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
    await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"data": {"x": "1"}})

    stale = {"metadata": {"resourceVersion": created.metadata.resource_version}, "data": {"x": "2"}}
    with pytest.raises(Conflict, match="the object has been modified; please apply your changes"):
        await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), stale)

    assert (await cluster.get(WHOLE_CONFIG_MAPS, Key(namespace, "a")))["data"] == {"x": "1"}


async def test_a_patch_of_the_newest_version_is_taken(cluster: Client, namespace: str) -> None:
    created = await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    fresh = {"metadata": {"resourceVersion": created.metadata.resource_version}, "data": {"x": "2"}}
    patched = await cluster.patch(WHOLE_CONFIG_MAPS, Key(namespace, "a"), fresh)

    assert patched["data"] == {"x": "2"}


async def test_a_patch_cannot_make_an_object_another_one(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
    key = Key(namespace, "a")

    with pytest.raises(BadRequest):
        await cluster.patch(CONFIG_MAPS, key, {"metadata": {"name": "b"}})
    with pytest.raises(Invalid):
        await cluster.patch(CONFIG_MAPS, key, {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}})


async def test_what_only_the_server_sets_cannot_be_set(cluster: Client, namespace: str) -> None:
    created = await cluster.create(WHOLE_CONFIG_MAPS, config_map(namespace, "a"))

    forged = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 77, "labels": {"a": "b"}}}
    patched = await cluster.patch(WHOLE_CONFIG_MAPS, Key(namespace, "a"), forged)

    assert patched["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert patched["metadata"].get("generation") == created["metadata"].get("generation")


async def test_patching_what_is_not_there_is_not_found(cluster: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        await cluster.patch(CONFIG_MAPS, Key(namespace, "nobody"), {"data": {}})


async def test_no_update_is_lost_when_many_write_at_once(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "counter", count="0"))
    key = Key(namespace, "counter")

    async def count_one() -> None:
        while True:
            read = await cluster.get(WHOLE_CONFIG_MAPS, key)
            version, count = read["metadata"]["resourceVersion"], int(read["data"]["count"])
            try:
                patch = {"metadata": {"resourceVersion": version}, "data": {"count": str(count + 1)}}
                await cluster.patch(CONFIG_MAPS, key, patch)
            except Conflict:
                continue
            return

    async with asyncio.timeout(60):
        await asyncio.gather(*(count_one() for _ in range(20)))

    assert (await cluster.get(WHOLE_CONFIG_MAPS, key))["data"]["count"] == "20"


async def test_a_deleted_object_is_gone(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))

    with pytest.raises(NotFound):
        await cluster.get(CONFIG_MAPS, Key(namespace, "a"))
    with pytest.raises(NotFound):
        await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))


async def test_a_delete_that_means_another_object_is_a_conflict(cluster: Client, namespace: str) -> None:
    old = await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
    await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
    new = await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))

    for meant in (DeleteOptions(uid=old.metadata.uid), DeleteOptions(resource_version=old.metadata.resource_version)):
        with pytest.raises(Conflict):
            await cluster.delete(CONFIG_MAPS, Key(namespace, "a"), meant)

    precise = DeleteOptions(uid=new.metadata.uid, resource_version=new.metadata.resource_version)
    await cluster.delete(CONFIG_MAPS, Key(namespace, "a"), precise)


async def test_a_finalizer_keeps_an_object_until_it_is_taken_away(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/later"]
    await cluster.create(CONFIG_MAPS, body)
    key = Key(namespace, "a")

    await cluster.delete(CONFIG_MAPS, key)
    waiting = await cluster.get(CONFIG_MAPS, key)
    await cluster.patch(CONFIG_MAPS, key, {"metadata": {"finalizers": None}})

    assert waiting.metadata.is_being_deleted
    with pytest.raises(NotFound):
        await cluster.get(CONFIG_MAPS, key)


async def test_an_ending_object_takes_no_new_finalizer(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/later"]
    await cluster.create(CONFIG_MAPS, body)
    key = Key(namespace, "a")
    await cluster.delete(CONFIG_MAPS, key)

    with pytest.raises(Invalid, match="no new finalizers can be added"):
        await cluster.patch(CONFIG_MAPS, key, {"metadata": {"finalizers": ["example.com/later", "example.com/more"]}})


@pytest.mark.parametrize(("propagation", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
async def test_how_dependents_shall_go_is_written_as_a_finalizer(
    cluster: Client, namespace: str, propagation: str, finalizer: str
) -> None:
    body = config_map(namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/later"]
    made = await cluster.create(CONFIG_MAPS, body)

    chosen = Selector(namespace, field_selector="metadata.name=a")
    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, made.metadata.resource_version) as seen:
        await cluster.delete(CONFIG_MAPS, Key(namespace, "a"), DeleteOptions(propagation_policy=propagation))  # type: ignore[arg-type]
        _, kept = await seen.next()

    # Where a garbage collector is at work, it takes its finalizer away at once: only the first event shows it.
    assert sorted(kept["metadata"]["finalizers"]) == sorted(["example.com/later", finalizer])


async def test_an_event_is_about_something_in_its_own_namespace(cluster: Client, namespace: str) -> None:
    body: Json = {"metadata": {"name": "e", "namespace": namespace}, "reason": "Started", "type": "Normal"}
    here = {"kind": "Pod", "name": "p", "namespace": namespace}
    await cluster.create(EVENTS, {**body, "involvedObject": here})

    with pytest.raises(Invalid, match=r"does not match event\.namespace"):
        await cluster.create(EVENTS, {**body, "involvedObject": {**here, "namespace": "elsewhere"}})

    about_it = Selector(namespace, field_selector="involvedObject.name=p,reason=Started,type=Normal")
    assert len((await cluster.list(EVENTS, about_it)).items) == 1
    other = Selector(namespace, field_selector="involvedObject.name=p,reason=Stopped")
    assert len((await cluster.list(EVENTS, other)).items) == 0


async def test_the_writer_is_noted_with_the_time_of_its_write(cluster: Client, namespace: str) -> None:
    created = await cluster.create(PODS.with_model(CustomObject), pod(namespace, "a"))

    noted = created.metadata.managed_fields
    assert [entry.operation for entry in noted] == ["Update"]
    assert noted[0].manager
    assert noted[0].api_version == "v1"
    assert noted[0].time == created.metadata.creation_timestamp
    assert "f:spec" in noted[0].fields_v1
    assert (await cluster.get(WHOLE_PODS, Key(namespace, "a")))["metadata"]["managedFields"]
