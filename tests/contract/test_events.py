"""Events are one thing in two groups."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import Invalid
from tarragon.client.port import Client, Selector
from tarragon.kube.core import EVENTS
from tarragon.kube.meta import Key, PartialObjectMetadata, Resource
from tests.contract.objects import Json, watching

OLD = EVENTS.with_model(dict)
NEW = Resource(
    group="events.k8s.io", version="v1", plural="events", kind="Event", model=PartialObjectMetadata
).with_model(dict)


def old_event(namespace: str, name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
        "reason": "Tired",
        "message": "the pod yawned",
        "type": "Normal",
        "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "tester"},
    }


def new_event(namespace: str, name: str, **more: Any) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "regarding": {"kind": "Pod", "name": "q", "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "reportingController": "example.com/tester",
        "reportingInstance": "tester-1",
        "action": "Yawning",
        "reason": "Tired",
        "note": "the pod yawned",
        "type": "Normal",
        **more,
    }


async def test_an_event_of_the_core_group_is_read_through_the_other(cluster: Client, namespace: str) -> None:
    await cluster.create(OLD, old_event(namespace, "e"))

    read = await cluster.get(NEW, Key(namespace, "e"))

    assert read["regarding"]["name"] == "p"
    assert (read["note"], read["deprecatedCount"], read["deprecatedSource"]) == (
        "the pod yawned",
        2,
        {"component": "tester"},
    )
    assert read["deprecatedFirstTimestamp"] == "2026-01-01T00:00:00Z"
    assert not {"involvedObject", "message", "count", "source"} & read.keys()


async def test_an_event_of_the_other_group_is_read_through_the_core(cluster: Client, namespace: str) -> None:
    await cluster.create(NEW, new_event(namespace, "e"))

    listed = await cluster.list(OLD, Selector(namespace=namespace, field_selector="involvedObject.name=q"))

    [read] = listed.items
    assert (read["message"], read["reportingComponent"], read["action"]) == (
        "the pod yawned",
        "example.com/tester",
        "Yawning",
    )
    assert read["eventTime"] == "2026-01-01T00:00:00.000001Z"


async def test_each_group_selects_by_its_own_names(cluster: Client, namespace: str) -> None:
    await cluster.create(OLD, old_event(namespace, "a"))
    await cluster.create(NEW, new_event(namespace, "b"))

    listed = await cluster.list(NEW, Selector(namespace=namespace, field_selector="regarding.name=q,reason=Tired"))

    assert [one["metadata"]["name"] for one in listed.items] == ["b"]


async def test_a_watch_of_one_group_sees_what_comes_through_the_other(cluster: Client, namespace: str) -> None:
    ours = Selector(namespace=namespace, field_selector="metadata.name=a")  # a real cluster tells events of its own
    since = (await cluster.list(NEW, ours)).resource_version

    async with watching(cluster, NEW, ours, since) as seen:
        await cluster.create(OLD, old_event(namespace, "a"))
        await cluster.patch(OLD, Key(namespace, "a"), {"count": 3})
        events = [await seen.next() for _ in range(2)]

    assert [(kind, event["deprecatedCount"]) for kind, event in events] == [("ADDED", 2), ("MODIFIED", 3)]


async def test_what_is_deleted_in_one_group_is_gone_from_both(cluster: Client, namespace: str) -> None:
    await cluster.create(OLD, old_event(namespace, "a"))

    await cluster.delete(NEW, Key(namespace, "a"))

    left = (await cluster.list(OLD, Selector(namespace=namespace))).items
    assert "a" not in {one["metadata"]["name"] for one in left}


async def test_a_new_event_says_when_by_whom_and_what_was_done(cluster: Client, namespace: str) -> None:
    lacking = new_event(namespace, "a", eventTime=None, action="", type="Odd", deprecatedCount=1)

    with pytest.raises(Invalid) as caught:
        await cluster.create(NEW, lacking)

    assert "eventTime: Required value" in str(caught.value)
