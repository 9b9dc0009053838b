from __future__ import annotations

import pytest

from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, SECRETS
from tarragon.kube.meta import AnyObject, Key
from tarragon.localcluster.controllers.garbage import GarbageCollector
from tests.localcluster.controllers.world import WIDGETS, World, define_widgets, owner, pod_spec


def collect(world: World) -> None:
    world.start(GarbageCollector(world.client, world.kinds, world.clock, world.jitter))


async def everything_was_looked_at(world: World) -> None:
    """Garbage that comes last goes last: then whatever else had to go has gone."""
    for name in ("sentinel-1", "sentinel-2"):
        dead = AnyObject()
        await world.create(CONFIG_MAPS, name, owners=[owner("Secret", dead, name="never-was", uid=f"uid-of-{name}")])
        await world.gone(f"configmaps/default/{name}")


async def test_what_was_owned_goes_with_its_owner(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    child = await world.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    await world.create(PODS, "grandchild", owners=[owner("Secret", child)], spec=pod_spec())
    await world.create(SECRETS, "stranger")
    await world.there("pods/default/grandchild", "secrets/default/stranger")

    await world.delete(CONFIG_MAPS, "root", "Background")
    await world.gone("configmaps/default/root", "secrets/default/child", "pods/default/grandchild")

    assert world.deleted() == ["configmaps/default/root", "secrets/default/child", "pods/default/grandchild"]
    assert "secrets/default/stranger" in world.objects


async def test_one_of_two_owners_is_enough_to_stay_and_the_dead_one_is_struck_out(world: World) -> None:
    collect(world)
    one, two = await world.create(CONFIG_MAPS, "one"), await world.create(CONFIG_MAPS, "two")
    await world.create(SECRETS, "child", owners=[owner("ConfigMap", one), owner("ConfigMap", two)])
    await world.delete(CONFIG_MAPS, "one", "Background")

    child = "secrets/default/child"
    await world.until(lambda: len(world.objects[child]["metadata"]["ownerReferences"]) == 1)
    assert world.objects[child]["metadata"]["ownerReferences"][0]["name"] == "two"

    await world.delete(CONFIG_MAPS, "two", "Background")
    await world.gone(child)


async def test_an_owner_with_the_right_name_and_another_uid_is_dead(world: World) -> None:
    first = await world.create(CONFIG_MAPS, "owner")
    await world.delete(CONFIG_MAPS, "owner", "Background")
    await world.create(CONFIG_MAPS, "owner")
    await world.create(SECRETS, "child", owners=[owner("ConfigMap", first)])
    collect(world)

    await world.gone("secrets/default/child")
    assert "configmaps/default/owner" in world.objects


async def test_garbage_that_was_there_before_the_collector_is_found(world: World) -> None:
    root = await world.create(CONFIG_MAPS, "root")
    await world.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    await world.delete(CONFIG_MAPS, "root", "Background")
    collect(world)

    await world.gone("secrets/default/child")


async def test_foreground_deletion_takes_those_that_block_first(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    child = await world.create(SECRETS, "child", owners=[owner("ConfigMap", root, blockOwnerDeletion=True)])
    blocking = [owner("Secret", child, blockOwnerDeletion=True)]
    await world.create(PODS, "grandchild", owners=blocking, spec=pod_spec())
    await world.there("pods/default/grandchild")

    await world.delete(CONFIG_MAPS, "root", "Foreground")
    await world.gone("configmaps/default/root", "secrets/default/child", "pods/default/grandchild")

    assert world.deleted() == ["pods/default/grandchild", "secrets/default/child", "configmaps/default/root"]


async def test_an_owner_deleted_in_the_foreground_waits_for_a_blocking_dependents_finalizer(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    blocking = [owner("ConfigMap", root, blockOwnerDeletion=True)]
    await world.create(SECRETS, "child", owners=blocking, finalizers=["example.org/hold"])
    await world.there("secrets/default/child")
    await world.delete(CONFIG_MAPS, "root", "Foreground")
    await world.until(lambda: "deletionTimestamp" in world.objects["secrets/default/child"]["metadata"])
    await everything_was_looked_at(world)
    assert "configmaps/default/root" in world.objects

    await world.client.patch(SECRETS, Key("default", "child"), {"metadata": {"finalizers": None}})
    await world.gone("configmaps/default/root")


async def test_foreground_deletion_does_not_wait_for_those_that_do_not_block(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    await world.create(SECRETS, "child", owners=[owner("ConfigMap", root)], finalizers=["example.org/hold"])
    await world.there("secrets/default/child")
    await world.delete(CONFIG_MAPS, "root", "Foreground")

    await world.gone("configmaps/default/root")
    await world.until(lambda: "deletionTimestamp" in world.objects["secrets/default/child"]["metadata"])


async def test_two_that_own_and_block_each_other_both_go(world: World) -> None:
    collect(world)
    one = await world.create(CONFIG_MAPS, "one")
    two = await world.create(SECRETS, "two", owners=[owner("ConfigMap", one, blockOwnerDeletion=True)])
    circle = {"metadata": {"ownerReferences": [owner("Secret", two, blockOwnerDeletion=True)]}}
    await world.client.patch(CONFIG_MAPS, Key("default", "one"), circle)
    await world.delete(CONFIG_MAPS, "one", "Foreground")

    await world.gone("configmaps/default/one", "secrets/default/two")


async def test_orphans_stay_and_forget_their_owner(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    await world.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    await world.there("secrets/default/child")
    await world.delete(CONFIG_MAPS, "root", "Orphan")

    await world.gone("configmaps/default/root")
    await everything_was_looked_at(world)
    assert "ownerReferences" not in world.objects["secrets/default/child"]["metadata"]


async def test_what_is_created_for_an_owner_that_is_gone_goes_at_once(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    await world.delete(CONFIG_MAPS, "root", "Background")
    await world.gone("configmaps/default/root")
    await world.create(SECRETS, "late", owners=[owner("ConfigMap", root)])

    await world.gone("secrets/default/late")


async def test_an_owner_in_another_namespace_is_no_owner(world: World) -> None:
    root = await world.create(CONFIG_MAPS, "root", namespace="kube-system")
    await world.create(SECRETS, "child", owners=[owner("ConfigMap", root)])
    collect(world)

    await world.gone("secrets/default/child")
    assert "configmaps/kube-system/root" in world.objects


async def test_an_owner_outside_of_all_namespaces_is_one(world: World) -> None:
    collect(world)
    node = await world.create(NODES, "here")
    await world.create(SECRETS, "child", owners=[owner("Node", node)])
    await everything_was_looked_at(world)
    assert "secrets/default/child" in world.objects

    await world.delete(NODES, "here", "Background")
    await world.gone("secrets/default/child")


async def test_an_owner_of_a_kind_that_nobody_serves_is_left_in_peace(world: World) -> None:
    collect(world)
    dead = AnyObject()
    reference = owner("Rocket", dead, apiVersion="space.org/v1", name="apollo", uid="u-1")
    await world.create(SECRETS, "child", owners=[reference])
    await everything_was_looked_at(world)

    assert "secrets/default/child" in world.objects


@pytest.mark.parametrize("started", ["before", "after"])
async def test_objects_of_custom_kinds_own_and_are_owned(world: World, started: str) -> None:
    if started == "before":
        collect(world)
    await define_widgets(world)
    widget = await world.create(WIDGETS, "boss")
    small = await world.create(WIDGETS, "small", owners=[owner("Widget", widget, apiVersion="example.org/v1")])
    # Of a version that is not served any more: kube-controller-manager would leave such a pod for ever.
    reference = owner("Widget", small, apiVersion="example.org/v1beta7")
    await world.create(PODS, "worker", owners=[reference], spec=pod_spec())
    if started == "after":
        collect(world)
    await everything_was_looked_at(world)
    assert "pods/default/worker" in world.objects

    await world.delete(WIDGETS, "boss", "Background")
    await world.gone("widgets/default/boss", "widgets/default/small", "pods/default/worker")


async def test_what_belonged_to_a_kind_goes_when_the_kind_goes(world: World) -> None:
    collect(world)
    await define_widgets(world)
    widget = await world.create(WIDGETS, "boss")
    await world.create(PODS, "worker", owners=[owner("Widget", widget, apiVersion="example.org/v1")], spec=pod_spec())
    await everything_was_looked_at(world)

    await world.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.org")
    await world.gone("pods/default/worker")


async def test_hundreds_of_dependents_go_and_nothing_is_deleted_twice(world: World) -> None:
    collect(world)
    root = await world.create(CONFIG_MAPS, "root")
    for number in range(200):
        await world.create(SECRETS, f"child-{number}", owners=[owner("ConfigMap", root)])
    await world.delete(CONFIG_MAPS, "root", "Background")

    await world.until(lambda: not any(what.startswith("secrets/default/child") for what in world.objects))
    assert len(world.deleted()) == len(set(world.deleted())) == 201
