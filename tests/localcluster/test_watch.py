from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import BadRequest, ResourceExpired
from tarragon.localcluster.api.requests import WatchOptions
from tarragon.localcluster.storage.store import HistoryWindow
from tests.localcluster.builders import (
    CONFIG_MAPS,
    CRDS,
    WIDGETS,
    ApiClient,
    config_map,
    definition,
    opened,
    ready,
    version,
    widget,
)


async def test_a_watch_without_a_version_starts_with_the_existing_objects(asking: ApiClient) -> None:
    for name in ("b", "a"):
        await asking.create(CONFIG_MAPS, config_map(name))
    watch = asking.api.watch(asking.target(CONFIG_MAPS))

    first = await ready(watch)
    await asking.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})
    then = await ready(watch)

    assert [(kind, thing["metadata"]["name"]) for kind, thing in first] == [("ADDED", "a"), ("ADDED", "b")]
    assert [(kind, thing["metadata"]["name"]) for kind, thing in then] == [("MODIFIED", "a")]


async def test_initial_events_end_with_a_marked_bookmark(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a"))
    options = WatchOptions(send_initial_events=True, allow_bookmarks=True, resource_version_match="NotOlderThan")

    events = await ready(asking.api.watch(asking.target(CONFIG_MAPS), options))

    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK"]
    assert events[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (events[1][1]["kind"], events[1][1]["apiVersion"]) == ("ConfigMap", "v1")


async def test_a_watch_cannot_resume_within_its_initial_events(asking: ApiClient) -> None:
    await asyncio.gather(*(asking.create(CONFIG_MAPS, config_map(f"c{number}")) for number in range(1001)))
    now = asking.api.list(asking.target(CONFIG_MAPS)).resource_version
    watch = asking.api.watch(asking.target(CONFIG_MAPS))

    some = await anext(watch)
    in_between = watch.bookmark().resource_version
    rest = await anext(watch)

    assert sorted(len(part) for part in (some, rest)) == [1, 1000]
    assert len({event.object for event in (*some, *rest)}) == 1001
    assert (in_between, watch.bookmark().resource_version) == ("0", now)


async def test_a_watch_of_one_name_sees_only_that(asking: ApiClient) -> None:
    watch = asking.api.watch(asking.target(CONFIG_MAPS, "b"))
    for name in ("a", "b", "c"):
        await asking.create(CONFIG_MAPS, config_map(name))

    assert [thing["metadata"]["name"] for _, thing in await ready(watch)] == ["b"]


async def test_only_watches_that_request_bookmarks_get_them(asking: ApiClient) -> None:
    since = asking.api.list(asking.target(CONFIG_MAPS)).resource_version
    wanting = asking.api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=since, allow_bookmarks=True))
    plain = asking.api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=since))
    reading = asyncio.ensure_future(ready(wanting))
    silent = asyncio.ensure_future(ready(plain))
    await asyncio.sleep(0)  # noqa: TID251 - lets both begin to wait
    created = await asking.create(("", "v1", "namespaces"), {"metadata": {"name": "elsewhere"}})

    await asking.api.maintain_once()
    events = await reading

    assert [kind for kind, _ in events] == ["BOOKMARK"]
    assert events[0][1]["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    assert not silent.done()
    plain.close()
    with pytest.raises(StopAsyncIteration):
        await silent


async def test_a_watch_resumes_from_its_last_bookmark(asking: ApiClient) -> None:
    watch = asking.api.watch(asking.target(CONFIG_MAPS))
    await asking.create(CONFIG_MAPS, config_map("a"))
    await ready(watch)
    last = watch.bookmark().resource_version
    await asking.create(CONFIG_MAPS, config_map("b"))

    events = await ready(asking.api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=last)))

    assert [thing["metadata"]["name"] for _, thing in events] == ["b"]


async def test_a_reader_that_is_too_slow_is_expired_instead_of_buffered(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        asking = ApiClient(api)
        since = api.list(asking.target(CONFIG_MAPS)).resource_version
        watch = api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=since))
        await asking.create(CONFIG_MAPS, config_map("a"))
        for number in range(50):
            await asking.patch(CONFIG_MAPS, "a", {"data": {"x": str(number)}})
        clock.advance(1000)
        await api.maintain_once()

        with pytest.raises(ResourceExpired, match="too old resource version"):
            await ready(watch)


async def test_a_compaction_does_not_expire_a_reader_that_is_up_to_date(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        asking = ApiClient(api)
        watch = api.watch(asking.target(CONFIG_MAPS))
        await asking.create(CONFIG_MAPS, config_map("a"))
        await ready(watch)
        clock.advance(1000)
        await api.maintain_once()
        await asking.create(CONFIG_MAPS, config_map("b"))

        assert [thing["metadata"]["name"] for _, thing in await ready(watch)] == ["b"]


async def test_a_long_replay_comes_in_batches(asking: ApiClient) -> None:
    since = asking.api.list(asking.target(CONFIG_MAPS)).resource_version
    await asyncio.gather(*(asking.create(CONFIG_MAPS, config_map(f"c{number}")) for number in range(2_500)))
    watch = asking.api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=since))

    batches = [await ready(watch) for _ in range(3)]

    assert [len(batch) for batch in batches] == [1_000, 1_000, 500]


async def test_a_watch_from_a_version_that_was_never_issued_is_expired(asking: ApiClient) -> None:
    with pytest.raises(ResourceExpired, match="too large resource version"):
        asking.api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version="9" * 17))


async def test_a_watch_from_a_deleted_cluster_is_expired(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "first" / "store.db", clock) as api:
        await ApiClient(api).create(CONFIG_MAPS, config_map("a"))
        since = api.list(ApiClient(api).target(CONFIG_MAPS)).resource_version
    clock.advance(60)

    async with opened(tmp_path / "second" / "store.db", clock) as api:
        with pytest.raises(ResourceExpired):
            api.watch(ApiClient(api).target(CONFIG_MAPS), WatchOptions(resource_version=since))


async def test_a_version_that_is_not_a_number_is_a_bad_request(asking: ApiClient) -> None:
    with pytest.raises(BadRequest, match="invalid syntax"):
        asking.api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version="-1"))


async def test_closing_ends_a_waiting_watch(asking: ApiClient) -> None:
    watch = asking.api.watch(asking.target(CONFIG_MAPS))
    reading = asyncio.ensure_future(ready(watch))
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait

    watch.close()

    with pytest.raises(StopAsyncIteration):
        await reading


async def test_closing_the_api_ends_all_watches(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        reading = asyncio.ensure_future(ready(api.watch(ApiClient(api).target(CONFIG_MAPS))))
        await asyncio.sleep(0)  # noqa: TID251 - lets it begin to wait

    with pytest.raises(StopAsyncIteration):
        await reading


async def test_watches_end_with_the_last_events_of_a_removed_kind(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a"))
    watch = asking.api.watch(asking.target(WIDGETS))
    await ready(watch)

    await asking.delete(CRDS, "widgets.example.com")
    last = await ready(watch)

    assert [kind for kind, _ in last] == ["DELETED"]
    with pytest.raises(StopAsyncIteration):
        await ready(watch)


async def test_a_kind_that_is_defined_again_can_be_watched_again(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.delete(CRDS, "widgets.example.com")
    await asking.create(CRDS, definition())
    watch = asking.api.watch(asking.target(WIDGETS))

    await asking.create(WIDGETS, widget("a"))

    assert [kind for kind, _ in await ready(watch)] == ["ADDED"]


async def test_a_new_version_of_a_kind_does_not_end_its_watches(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    watch = asking.api.watch(asking.target(WIDGETS))
    more = {"spec": {"versions": [version("v1"), version("v1beta1", stored=False)]}}

    await asking.patch(CRDS, "widgets.example.com", more)
    await asking.create(WIDGETS, widget("a"))

    assert [kind for kind, _ in await ready(watch)] == ["ADDED"]
