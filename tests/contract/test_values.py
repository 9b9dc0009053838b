from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarragon.client.errors import NotFound, Unavailable
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS
from tarragon.kube.meta import Key
from tests.contract.conftest import Gadgets, define_gadgets
from tests.contract.objects import WHOLE_CONFIG_MAPS, WHOLE_PODS, Json, config_map, gadget, pod, watching

# Lines, quotes, every plane of Unicode, what terminals and JavaScript dislike, and a nul.
HARD_TEXT = 'a "quoted"\tline\r\nümlaut 漢字 🐉 \u2028\u2029 \u0000\u001b[31m \\u0041 </script> é'


async def test_text_comes_back_as_it_went(cluster: Client, namespace: str) -> None:
    made = await cluster.create(WHOLE_CONFIG_MAPS, config_map(namespace, "a", x=HARD_TEXT))
    listed = (await cluster.list(WHOLE_CONFIG_MAPS, Selector(namespace, field_selector="metadata.name=a"))).items[0]

    assert made["data"] == listed["data"] == {"x": HARD_TEXT}


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "",
        0,
        -1,
        2**53 + 1,
        0.5,
        1e300,
        False,
        None,
        {"empty": {}, "none": None, "list": [None, [], {}, ""]},
        {"deep": {"deep": {"deep": {"deep": [[[[1]]]]}}}},
        {"": "no key", "a.b/c": "a path", "ä": 1},
    ],
    ids=str,
)
async def test_free_values_come_back_as_they_went(
    cluster: Client, namespace: str, gadgets: Gadgets, value: object
) -> None:
    made = await cluster.create(gadgets, gadget(gadgets, namespace, "a", free={"value": value}))
    read = await cluster.get(gadgets, Key(namespace, "a"))

    assert made["spec"]["free"] == read["spec"]["free"] == {"value": value}
    assert type(read["spec"]["free"]["value"]) is type(value)


async def test_a_patch_takes_away_by_null_and_replaces_lists_whole(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    before: Json = {"list": [1, 2, {"a": 1}], "map": {"a": 1, "b": 2}, "gone": 1}
    await cluster.create(gadgets, gadget(gadgets, namespace, "a", free=before))

    patch = {"list": [{"b": 2}], "map": {"a": None, "c": {"d": None, "e": 3}}, "gone": None, "never": None}
    patched = await cluster.patch(gadgets, Key(namespace, "a"), {"spec": {"free": patch}})

    assert patched["spec"]["free"] == {"list": [{"b": 2}], "map": {"b": 2, "c": {"e": 3}}}


async def test_an_empty_patch_changes_nothing(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    made = await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))

    for subresource in ("", "status"):
        assert await cluster.patch(gadgets, Key(namespace, "a"), {}, subresource=subresource) == made


async def test_a_line_of_a_watch_may_be_as_long_as_an_object(cluster: Client, namespace: str) -> None:
    since = (await cluster.list(CONFIG_MAPS, Selector(namespace))).resource_version
    long = "ü" * 400_000

    async with watching(cluster, WHOLE_CONFIG_MAPS, Selector(namespace, label_selector="of=me"), since) as seen:
        for name in "abc":
            await cluster.create(CONFIG_MAPS, config_map(namespace, name, labels={"of": "me"}, x=long))
        values = [(await seen.next())[1] for _ in range(3)]

    assert [one["metadata"]["name"] for one in values] == ["a", "b", "c"]
    assert all(one["data"] == {"x": long} for one in values)


async def test_a_list_is_of_one_moment_while_things_come_and_go(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, label_selector="of=me")

    async def make(name: str) -> None:
        await cluster.create(CONFIG_MAPS, config_map(namespace, name, labels={"of": "me"}))

    await asyncio.gather(*(make(f"stays-{number:04}") for number in range(0, 1_200, 2)))
    await asyncio.gather(*(make(f"pair-{number:04}") for number in range(0, 200, 2)))

    async def come_and_go() -> None:
        # One goes before the next comes, so that at every moment there are a hundred or one less.
        for number in range(0, 200, 2):
            await cluster.delete(CONFIG_MAPS, Key(namespace, f"pair-{number:04}"))
            await make(f"pair-{number + 1:04}")

    moving = asyncio.create_task(come_and_go())
    listings = [await cluster.list(CONFIG_MAPS, chosen) for _ in range(4)]
    await moving

    for listing in listings:
        names = [one.metadata.name for one in listing.items]
        assert names == sorted(set(names))
        assert sum(name.startswith("stays") for name in names) == 600
        assert sum(name.startswith("pair") for name in names) in {99, 100}


async def test_a_version_of_a_list_and_a_watch_make_up_the_next_list(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, label_selector="of=me")
    for name in "abcd":
        await cluster.create(CONFIG_MAPS, config_map(namespace, name, labels={"of": "me"}))
    first = await cluster.list(WHOLE_CONFIG_MAPS, chosen)
    await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
    await cluster.patch(CONFIG_MAPS, Key(namespace, "b"), {"data": {"x": "1"}})
    await cluster.patch(CONFIG_MAPS, Key(namespace, "c"), {"metadata": {"labels": None}})
    await cluster.create(CONFIG_MAPS, config_map(namespace, "e", labels={"of": "me"}))
    second = await cluster.list(WHOLE_CONFIG_MAPS, chosen)

    known: dict[str, Any] = {one["metadata"]["name"]: one for one in first.items}
    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, first.resource_version) as seen:
        for _ in range(4):
            kind, thing = await seen.next()
            known[thing["metadata"]["name"]] = thing if kind != "DELETED" else None

    assert [_unnamed(known[name]) for name in sorted(known) if known[name] is not None] == list(second.items)


async def test_the_items_of_a_list_say_what_they_are_only_of_custom_kinds(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
    await cluster.create(gadgets, gadget(gadgets, namespace, "a"))

    built_in = (await cluster.list(WHOLE_CONFIG_MAPS, Selector(namespace, field_selector="metadata.name=a"))).items[0]
    custom = (await cluster.list(gadgets, Selector(namespace))).items[0]

    assert not {"kind", "apiVersion"} & set(built_in)
    assert (custom["kind"], custom["apiVersion"]) == (gadgets.kind, gadgets.api_version)


async def test_a_deleted_objects_last_event_has_a_version_of_its_own(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, field_selector="metadata.name=a")
    since = (await cluster.list(CONFIG_MAPS, chosen)).resource_version

    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, since) as seen:
        await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
        await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
        await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
        events = [await seen.next() for _ in range(3)]

    assert [kind for kind, _ in events] == ["ADDED", "DELETED", "ADDED"]
    versions = [int(thing["metadata"]["resourceVersion"]) for _, thing in events]
    assert versions == sorted(set(versions))
    assert events[0][1]["metadata"]["uid"] == events[1][1]["metadata"]["uid"] != events[2][1]["metadata"]["uid"]


async def test_one_finalizer_of_two_is_not_enough_to_go(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    body = gadget(gadgets, namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
    await cluster.create(gadgets, body)
    key = Key(namespace, "a")
    await cluster.delete(gadgets, key)

    left = await cluster.patch(gadgets, key, {"metadata": {"finalizers": ["example.com/two"]}})
    assert left["metadata"]["deletionTimestamp"]
    await cluster.patch(gadgets, key, {"metadata": {"finalizers": []}})
    with pytest.raises(NotFound):
        await cluster.get(gadgets, key)


async def test_a_delete_that_must_wait_moves_the_generation_once(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    body = gadget(gadgets, namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/later"]
    await cluster.create(gadgets, body)
    key = Key(namespace, "a")

    await cluster.delete(gadgets, key)
    first = (await cluster.get(gadgets, key))["metadata"]
    await cluster.delete(gadgets, key)
    second = (await cluster.get(gadgets, key))["metadata"]

    assert (first["generation"], first["deletionGracePeriodSeconds"]) == (2, 0)
    assert first == second


async def test_an_ending_object_can_still_be_changed_and_cannot_be_made_to_stay(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    body = gadget(gadgets, namespace, "a", replicas=1)
    body["metadata"]["finalizers"] = ["example.com/later"]
    await cluster.create(gadgets, body)
    key = Key(namespace, "a")
    await cluster.delete(gadgets, key)

    found = await cluster.patch(gadgets, key, {"status": {"replicas": 1}}, subresource="status")
    revived = await cluster.patch(gadgets, key, {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}})

    assert found["status"] == {"replicas": 1}
    assert revived["metadata"]["deletionTimestamp"]
    assert revived["metadata"]["labels"] == {"a": "b"}


async def test_how_dependents_shall_go_can_be_said_anew(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/later"]
    made = await cluster.create(CONFIG_MAPS, body)
    key, chosen = Key(namespace, "a"), Selector(namespace, field_selector="metadata.name=a")

    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, made.metadata.resource_version) as seen:
        await cluster.delete(CONFIG_MAPS, key, DeleteOptions(propagation_policy="Foreground"))
        _, first = await seen.next()
    await cluster.delete(CONFIG_MAPS, key, DeleteOptions(propagation_policy="Background"))

    assert sorted(first["metadata"]["finalizers"]) == ["example.com/later", "foregroundDeletion"]
    assert (await cluster.get(CONFIG_MAPS, key)).metadata.finalizers == ["example.com/later"]


async def test_a_pods_delete_is_seen_with_the_time_of_its_end(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, field_selector="metadata.name=a")
    since = (await cluster.list(PODS, chosen)).resource_version
    key = Key(namespace, "a")

    async with watching(cluster, WHOLE_PODS, chosen, since) as seen:
        await cluster.create(PODS, pod(namespace, "a", nodeName="one"))
        await cluster.delete(PODS, key, DeleteOptions(grace_period_seconds=30))
        await cluster.delete(PODS, key, DeleteOptions(grace_period_seconds=0))
        events = [await seen.next() for _ in range(2)]
        while events[-1][0] != "DELETED":  # a real server tells of the shorter grace first
            events.append(await seen.next())

    assert [kind for kind, _ in events[:2]] == ["ADDED", "MODIFIED"]
    ending, gone = events[1][1]["metadata"], events[-1][1]["metadata"]
    assert (ending["deletionGracePeriodSeconds"], gone["deletionGracePeriodSeconds"]) == (30, 0)
    assert ending["deletionTimestamp"]


async def test_a_kind_goes_with_its_objects_and_comes_back_empty(cluster: Client, namespace: str) -> None:
    gadgets = await define_gadgets(cluster, "going.example.com")
    since = (await cluster.list(gadgets, Selector(namespace))).resource_version

    async with watching(cluster, gadgets, Selector(namespace), since) as seen:
        await cluster.create(gadgets, gadget(gadgets, namespace, "a"))
        kinds = [(await seen.next())[0]]
        await cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, Key("", f"gadgets.{gadgets.group}"))
        kinds.append((await seen.next())[0])
        with pytest.raises((StopAsyncIteration, Unavailable)):
            await seen.next()
    await define_gadgets(cluster, gadgets.group)

    assert kinds == ["ADDED", "DELETED"]
    assert list((await cluster.list(gadgets, Selector(namespace))).items) == []


def _unnamed(thing: Json) -> Json:
    return {name: value for name, value in thing.items() if name not in {"kind", "apiVersion"}}
