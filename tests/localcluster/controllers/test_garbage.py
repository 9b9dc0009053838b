from __future__ import annotations

import pytest

from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, SECRETS
from tarragon.kube.meta import PartialObjectMetadata
from tarragon.localcluster.controllers.garbage import GarbageCollector
from tests.localcluster.controllers.world import (
    WIDGETS,
    ControllerTest,
    EmbeddedCluster,
    define_widgets,
    owner,
    pod_spec,
)


def collect(scene: ControllerTest) -> None:
    scene.begin(lambda world: GarbageCollector(world.client, world.kinds, world.clock, world.jitter))


async def collector_is_idle(scene: ControllerTest) -> None:
    """Wait for the collector: garbage that is created last is deleted last.

    Kubernetes' collector watches each resource by itself, so there is garbage of both that these tests use: where it is
    gone, the collector has seen every ConfigMap and Secret that was written before.
    """
    for resource in (CONFIG_MAPS, SECRETS):
        for name in (f"sentinel-{resource.plural}-1", f"sentinel-{resource.plural}-2"):
            dead = owner("Secret", PartialObjectMetadata(), name="never-was", uid=f"uid-of-{name}")
            await scene.create(resource, name, owners=[dead])
            await scene.gone(f"{resource.plural}/default/{name}")


async def test_dependents_are_deleted_with_their_owner(scene: ControllerTest) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    child = await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    await scene.create(PODS, "grandchild", owners=[owner("Secret", child)], spec=pod_spec())
    await scene.create(SECRETS, "stranger")
    await scene.there("pods/default/grandchild", "secrets/default/stranger")

    await scene.delete(CONFIG_MAPS, "root", "Background")
    await scene.gone("configmaps/default/root", "secrets/default/child", "pods/default/grandchild")

    assert scene.deleted() == ["configmaps/default/root", "secrets/default/child", "pods/default/grandchild"]
    assert "secrets/default/stranger" in scene.objects


async def test_an_object_with_one_of_two_owners_stays_and_loses_the_dangling_reference(scene: ControllerTest) -> None:
    collect(scene)
    one, two = await scene.create(CONFIG_MAPS, "one"), await scene.create(CONFIG_MAPS, "two")
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", one), owner("ConfigMap", two)])
    await scene.delete(CONFIG_MAPS, "one", "Background")

    child = "secrets/default/child"
    await scene.until(lambda: len(scene.objects[child]["metadata"]["ownerReferences"]) == 1)
    assert scene.objects[child]["metadata"]["ownerReferences"][0]["name"] == "two"

    await scene.delete(CONFIG_MAPS, "two", "Background")
    await scene.gone(child)


async def test_an_owner_with_the_same_name_and_another_uid_does_not_exist(scene: ControllerTest) -> None:
    first = await scene.create(CONFIG_MAPS, "owner")
    await scene.delete(CONFIG_MAPS, "owner", "Background")
    await scene.create(CONFIG_MAPS, "owner")
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", first)])
    collect(scene)

    await scene.gone("secrets/default/child")
    assert "configmaps/default/owner" in scene.objects


async def test_garbage_from_before_the_start_of_the_collector_is_deleted(scene: ControllerTest) -> None:
    root = await scene.create(CONFIG_MAPS, "root")
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    await scene.delete(CONFIG_MAPS, "root", "Background")
    collect(scene)

    await scene.gone("secrets/default/child")


async def test_foreground_deletion_deletes_blocking_dependents_first(scene: ControllerTest) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    child = await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root, blockOwnerDeletion=True)])
    blocking = [owner("Secret", child, blockOwnerDeletion=True)]
    await scene.create(PODS, "grandchild", owners=blocking, spec=pod_spec())
    await scene.there("pods/default/grandchild")
    await collector_is_idle(scene)

    await scene.delete(CONFIG_MAPS, "root", "Foreground")
    await scene.gone("configmaps/default/root", "secrets/default/child", "pods/default/grandchild")

    deleted = [key for key in scene.deleted() if "sentinel" not in key]
    assert deleted == ["pods/default/grandchild", "secrets/default/child", "configmaps/default/root"]


async def test_foreground_deletion_waits_for_the_finalizer_of_a_blocking_dependent(scene: ControllerTest) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    blocking = [owner("ConfigMap", root, blockOwnerDeletion=True)]
    await scene.create(SECRETS, "child", owners=blocking, finalizers=["example.org/hold"])
    await scene.there("secrets/default/child")
    await collector_is_idle(scene)
    await scene.delete(CONFIG_MAPS, "root", "Foreground")
    await scene.until(lambda: "deletionTimestamp" in scene.objects["secrets/default/child"]["metadata"])
    await collector_is_idle(scene)
    assert "configmaps/default/root" in scene.objects

    await scene.patch(SECRETS, "child", {"metadata": {"finalizers": None}})
    await scene.gone("configmaps/default/root")


async def test_foreground_deletion_does_not_wait_for_dependents_that_do_not_block(scene: ControllerTest) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root)], finalizers=["example.org/hold"])
    await scene.there("secrets/default/child")
    await scene.delete(CONFIG_MAPS, "root", "Foreground")

    await scene.gone("configmaps/default/root")
    await scene.until(lambda: "deletionTimestamp" in scene.objects["secrets/default/child"]["metadata"])


async def test_two_objects_that_own_and_block_each_other_are_both_deleted(scene: ControllerTest) -> None:
    collect(scene)
    one = await scene.create(CONFIG_MAPS, "one")
    two = await scene.create(SECRETS, "two", owners=[owner("ConfigMap", one, blockOwnerDeletion=True)])
    circle = {"metadata": {"ownerReferences": [owner("Secret", two, blockOwnerDeletion=True)]}}
    await scene.patch(CONFIG_MAPS, "one", circle)
    await scene.delete(CONFIG_MAPS, "one", "Foreground")

    await scene.gone("configmaps/default/one", "secrets/default/two")


async def test_orphaned_dependents_stay_without_the_owner_reference(scene: ControllerTest) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    await scene.there("secrets/default/child")
    await scene.delete(CONFIG_MAPS, "root", "Orphan")

    await scene.gone("configmaps/default/root")
    await collector_is_idle(scene)
    assert "ownerReferences" not in scene.objects["secrets/default/child"]["metadata"]


async def test_a_dependent_created_for_a_deleted_owner_is_deleted_immediately(scene: ControllerTest) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    await scene.delete(CONFIG_MAPS, "root", "Background")
    await scene.gone("configmaps/default/root")
    await scene.create(SECRETS, "late", owners=[owner("ConfigMap", root)])

    await scene.gone("secrets/default/late")


async def test_an_owner_in_another_namespace_does_not_count(scene: ControllerTest) -> None:
    root = await scene.create(CONFIG_MAPS, "root", namespace="kube-system")
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    collect(scene)

    await scene.gone("secrets/default/child")
    assert "configmaps/kube-system/root" in scene.objects


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
async def test_a_dependent_whose_owners_kind_is_not_served_is_kept_even_if_the_uid_exists(
    scene: ControllerTest, namespace: str
) -> None:
    """The object with that uid does not matter, because the reference names another kind."""
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root", namespace=namespace)
    await scene.create(SECRETS, "child", owners=[owner("ConfigMap", root, apiVersion="nowhere.example/v1")])
    await scene.there("secrets/default/child")
    await collector_is_idle(scene)
    assert "secrets/default/child" in scene.objects

    await scene.delete(CONFIG_MAPS, "root", "Background", namespace=namespace)
    await scene.gone(f"configmaps/{namespace}/root")
    await collector_is_idle(scene)
    assert "secrets/default/child" in scene.objects


@pytest.mark.parametrize("wrong", [{"kind": "Service"}, {"name": "other"}], ids=lambda wrong: next(iter(wrong)))
async def test_an_owner_with_the_same_uid_and_another_kind_or_name_does_not_exist(
    scene: ControllerTest, wrong: dict[str, str]
) -> None:
    collect(scene)
    root = await scene.create(CONFIG_MAPS, "root")
    await scene.create(SECRETS, "child", owners=[{**owner("ConfigMap", root), **wrong}])

    await scene.gone("secrets/default/child")
    assert "configmaps/default/root" in scene.objects


async def test_one_valid_reference_of_two_with_the_same_uid_keeps_an_object(world: EmbeddedCluster) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    true, false = owner("ConfigMap", root), {**owner("ConfigMap", root), "name": "other"}
    await world.create(SECRETS, "child", owners=[true, false])

    await world.until(lambda: world.objects["secrets/default/child"]["metadata"]["ownerReferences"] == [true])


async def test_objects_in_another_namespace_do_not_block_a_foreground_deletion(world: EmbeddedCluster) -> None:
    """kube-controller-manager compares only the uid here, so the owner would wait for ever."""
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    false = owner("ConfigMap", root, apiVersion="nowhere.example/v1", blockOwnerDeletion=True)
    await world.create(SECRETS, "child", namespace="kube-system", owners=[false])
    await world.there("secrets/kube-system/child")
    await collector_is_idle(world)

    await world.delete(CONFIG_MAPS, "root", "Foreground")
    await world.gone("configmaps/default/root")
    assert "secrets/kube-system/child" in world.objects


async def test_a_cluster_scoped_owner_counts(scene: ControllerTest) -> None:
    collect(scene)
    node = await scene.create(NODES, "here")
    await scene.create(SECRETS, "child", owners=[owner("Node", node)])
    await collector_is_idle(scene)
    assert "secrets/default/child" in scene.objects

    await scene.delete(NODES, "here", "Background")
    await scene.gone("secrets/default/child")


async def test_dependents_of_a_kind_that_is_not_served_are_kept(scene: ControllerTest) -> None:
    collect(scene)
    dead = PartialObjectMetadata()
    reference = owner("Rocket", dead, apiVersion="space.org/v1", name="apollo", uid="u-1")
    await scene.create(SECRETS, "child", owners=[reference])
    await collector_is_idle(scene)

    assert "secrets/default/child" in scene.objects


@pytest.mark.parametrize("started", ["before", "after"])
async def test_objects_of_custom_kinds_own_and_are_owned(world: EmbeddedCluster, started: str) -> None:
    if started == "before":
        collect(world)
    await define_widgets(world)
    widget = await world.create(WIDGETS, "boss")
    small = await world.create(WIDGETS, "small", owners=[owner("Widget", widget, apiVersion="example.org/v1")])
    # The version is no longer served: kube-controller-manager would never delete such a pod.
    reference = owner("Widget", small, apiVersion="example.org/v1beta7")
    await world.create(PODS, "worker", owners=[reference], spec=pod_spec())
    if started == "after":
        collect(world)
    await collector_is_idle(world)
    assert "pods/default/worker" in world.objects

    await world.delete(WIDGETS, "boss", "Background")
    await world.gone("widgets/default/boss", "widgets/default/small", "pods/default/worker")


async def test_dependents_of_custom_objects_are_deleted_with_their_definition(world: EmbeddedCluster) -> None:
    collect(world)
    await define_widgets(world)
    widget = await world.create(WIDGETS, "boss")
    await world.create(PODS, "worker", owners=[owner("Widget", widget, apiVersion="example.org/v1")], spec=pod_spec())
    await collector_is_idle(world)

    await world.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.org")
    await world.gone("pods/default/worker")


async def test_hundreds_of_dependents_are_deleted_exactly_once(world: EmbeddedCluster) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    for number in range(200):
        await world.create(SECRETS, f"child-{number}", owners=[owner("ConfigMap", root)])
    await world.delete(CONFIG_MAPS, "root", "Background")

    await world.until(lambda: not any(what.startswith("secrets/default/child") for what in world.objects))
    assert len(world.deleted()) == len(set(world.deleted())) == 201
