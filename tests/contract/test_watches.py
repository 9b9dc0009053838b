from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tarragon.client.errors import ApiError, BadRequest
from tarragon.client.port import Client, Selector
from tarragon.client.streams import closing_stream
from tarragon.kube.core import CONFIG_MAPS, PODS
from tarragon.kube.meta import Key
from tests.contract.objects import PATIENCE, WHOLE_CONFIG_MAPS, WHOLE_PODS, Json, config_map, pod, watching


async def test_a_watch_tells_what_happens_in_order(cluster: Client, namespace: str) -> None:
    start = await cluster.list(CONFIG_MAPS, Selector(namespace))

    async with watching(
        cluster, WHOLE_CONFIG_MAPS, Selector(namespace, label_selector="of=me"), start.resource_version
    ) as seen:
        await cluster.create(CONFIG_MAPS, config_map(namespace, "a", labels={"of": "me"}))
        await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"data": {"x": "1"}})
        await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
        events = [await seen.next() for _ in range(3)]

    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [thing.get("data") for _, thing in events] == [None, {"x": "1"}, {"x": "1"}]
    versions = [int(thing["metadata"]["resourceVersion"]) for _, thing in events]
    assert versions == sorted(set(versions))


async def test_a_watch_from_a_lists_version_misses_nothing(cluster: Client, namespace: str) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "before", labels={"of": "me"}))
    chosen = Selector(namespace, label_selector="of=me")
    listing = await cluster.list(CONFIG_MAPS, chosen)
    await cluster.create(CONFIG_MAPS, config_map(namespace, "between", labels={"of": "me"}))

    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, listing.resource_version) as seen:
        await cluster.create(CONFIG_MAPS, config_map(namespace, "after", labels={"of": "me"}))
        names = [(await seen.next())[1]["metadata"]["name"] for _ in range(2)]

    assert names == ["between", "after"]


async def test_a_streaming_list_has_the_objects_then_its_bookmark_and_then_all_changes(
    cluster: Client, namespace: str
) -> None:
    await cluster.create(CONFIG_MAPS, config_map(namespace, "before", labels={"of": "me"}))
    stream = cluster.stream_list(WHOLE_CONFIG_MAPS, Selector(namespace, label_selector="of=me"))
    if stream is None:
        pytest.skip("this client does not stream lists")

    async with closing_stream(stream) as events, asyncio.timeout(PATIENCE):
        first = [await anext(events), await anext(events)]
        await cluster.create(CONFIG_MAPS, config_map(namespace, "after", labels={"of": "me"}))
        while (last := await anext(events)).type == "BOOKMARK":
            continue

    assert [(event.type, event.ends_initial_events) for event in first] == [("ADDED", False), ("BOOKMARK", True)]
    names = [event.object["metadata"]["name"] for event in (first[0], last) if event.object is not None]
    assert names == ["before", "after"]
    assert int(first[1].resource_version) < int(last.resource_version)


async def test_a_watch_goes_on_where_an_earlier_one_stopped(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, label_selector="of=me")
    since = (await cluster.list(CONFIG_MAPS, chosen)).resource_version
    names: list[str] = []

    for number in range(6):
        await cluster.create(CONFIG_MAPS, config_map(namespace, f"c{number}", labels={"of": "me"}))
        async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, since) as seen:
            _, thing = await seen.next()
            names.append(thing["metadata"]["name"])
            since = thing["metadata"]["resourceVersion"]

    assert names == [f"c{number}" for number in range(6)]


async def test_a_watch_sees_only_its_own_namespace(cluster: Client, namespace: str) -> None:
    since = (await cluster.list(CONFIG_MAPS, Selector(namespace))).resource_version
    own = Selector(namespace, label_selector=f"of={namespace}")

    async with watching(cluster, WHOLE_CONFIG_MAPS, own, since) as seen:
        await cluster.create(CONFIG_MAPS, config_map("default", f"not-{namespace}", labels={"of": namespace}))
        await cluster.create(CONFIG_MAPS, config_map(namespace, "mine", labels={"of": namespace}))
        _, thing = await seen.next()

    assert thing["metadata"]["name"] == "mine"


async def test_an_object_that_begins_to_match_is_added_and_one_that_stops_is_deleted(
    cluster: Client, namespace: str
) -> None:
    key = Key(namespace, "a")
    await cluster.create(CONFIG_MAPS, config_map(namespace, "a"))
    chosen = Selector(namespace, label_selector="chosen=yes")
    since = (await cluster.list(CONFIG_MAPS, chosen)).resource_version

    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, since) as seen:
        await cluster.patch(CONFIG_MAPS, key, {"metadata": {"labels": {"chosen": "yes"}}})
        await cluster.patch(CONFIG_MAPS, key, {"data": {"x": "1"}})
        stopped = await cluster.patch(CONFIG_MAPS, key, {"metadata": {"labels": {"chosen": "no"}}})
        await cluster.patch(CONFIG_MAPS, key, {"data": {"x": "2"}})
        await cluster.patch(CONFIG_MAPS, key, {"metadata": {"labels": {"chosen": "yes"}}})
        events = [await seen.next() for _ in range(4)]

    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    assert events[2][1]["metadata"]["labels"] == {"chosen": "yes"}
    assert events[2][1]["metadata"]["resourceVersion"] == stopped.metadata.resource_version


async def test_fields_can_be_watched(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, field_selector="spec.nodeName=one,status.phase=Running")
    since = (await cluster.list(PODS, chosen)).resource_version
    key = Key(namespace, "a")

    async with watching(cluster, WHOLE_PODS, chosen, since) as seen:
        await cluster.create(PODS, pod(namespace, "a", nodeName="one"))
        for phase in ("Running", "Succeeded"):
            await cluster.patch(PODS, key, {"status": {"phase": phase}}, subresource="status")
        events = [await seen.next() for _ in range(2)]

    assert [kind for kind, _ in events] == ["ADDED", "DELETED"]


async def test_a_finalized_delete_is_seen_as_a_change_and_then_a_delete(cluster: Client, namespace: str) -> None:
    body = config_map(namespace, "a")
    body["metadata"]["finalizers"] = ["example.com/later"]
    chosen = Selector(namespace, field_selector="metadata.name=a")
    since = (await cluster.list(CONFIG_MAPS, chosen)).resource_version

    async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, since) as seen:
        await cluster.create(CONFIG_MAPS, body)
        await cluster.delete(CONFIG_MAPS, Key(namespace, "a"))
        await cluster.patch(CONFIG_MAPS, Key(namespace, "a"), {"metadata": {"finalizers": None}})
        events = [await seen.next() for _ in range(3)]

    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert "deletionTimestamp" in events[1][1]["metadata"]


async def test_many_watches_see_the_same(cluster: Client, namespace: str) -> None:
    chosen = Selector(namespace, label_selector="of=me")
    since = (await cluster.list(CONFIG_MAPS, chosen)).resource_version

    async def follow() -> list[tuple[str, str]]:
        async with watching(cluster, WHOLE_CONFIG_MAPS, chosen, since) as seen:
            events = [await seen.next() for _ in range(20)]
        return [(kind, thing["metadata"]["resourceVersion"]) for kind, thing in events]

    followers = [asyncio.create_task(follow()) for _ in range(8)]
    for number in range(10):
        await cluster.create(CONFIG_MAPS, config_map(namespace, f"c{number}", labels={"of": "me"}))
        await cluster.delete(CONFIG_MAPS, Key(namespace, f"c{number}"))
    histories = await asyncio.gather(*followers)

    assert all(one == histories[0] for one in histories)
    assert [kind for kind, _ in histories[0]] == ["ADDED", "DELETED"] * 10


async def test_a_watch_with_a_bad_selector_is_a_bad_request(cluster: Client, namespace: str) -> None:
    since = (await cluster.list(PODS, Selector(namespace))).resource_version

    with pytest.raises(BadRequest):
        await _first_event(cluster, Selector(namespace, field_selector="spec.colour=red"), since)


async def test_a_watch_from_a_version_that_is_none_is_refused(cluster: Client, namespace: str) -> None:
    with pytest.raises(ApiError):
        await _first_event(cluster, Selector(namespace), "yesterday")


async def _first_event(cluster: Client, selection: Selector, since: str) -> Json | None:
    events = cluster.watch(WHOLE_PODS, selection, since)
    async with asyncio.timeout(PATIENCE), aclosing(events):  # type: ignore[type-var]
        return (await anext(events)).object
