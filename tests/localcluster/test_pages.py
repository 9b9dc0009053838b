from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError, BadRequest, Invalid, ResourceExpired
from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import ListOptions, ListPage
from tarragon.localcluster.storage.store import HistoryWindow
from tests.localcluster.builders import CONFIG_MAPS, NAMESPACES, PODS, ApiClient, config_map, opened, pod


def names(page: ListPage) -> list[str]:
    return [decode(item, dict)["metadata"]["name"] for item in page.items]


async def test_pages_follow_each_other_to_the_end(asking: ApiClient) -> None:
    for number in range(7):
        await asking.create(CONFIG_MAPS, config_map(f"c{number}"))
    pages = [asking.api.list(asking.target(CONFIG_MAPS), ListOptions(limit=3))]
    while pages[-1].continue_token:
        options = ListOptions(limit=3, continue_token=pages[-1].continue_token)
        pages.append(asking.api.list(asking.target(CONFIG_MAPS), options))

    assert [names(page) for page in pages] == [["c0", "c1", "c2"], ["c3", "c4", "c5"], ["c6"]]
    assert [page.remaining for page in pages] == [4, 1, 0]
    assert len({page.resource_version for page in pages}) == 1


async def test_later_pages_show_the_state_of_the_first(asking: ApiClient) -> None:
    for number in range(4):
        await asking.create(CONFIG_MAPS, config_map(f"c{number}", x="old"))
    first = asking.api.list(asking.target(CONFIG_MAPS), ListOptions(limit=2))
    await asking.delete(CONFIG_MAPS, "c2")
    await asking.patch(CONFIG_MAPS, "c3", {"data": {"x": "new"}})
    await asking.create(CONFIG_MAPS, config_map("c4"))

    second = asking.api.list(asking.target(CONFIG_MAPS), ListOptions(continue_token=first.continue_token))

    assert names(second) == ["c2", "c3"]
    assert decode(second.items[1], dict)["data"] == {"x": "old"}
    assert second.resource_version == first.resource_version


async def test_a_page_of_a_namespace_does_not_run_into_the_next(asking: ApiClient) -> None:
    await asking.create(NAMESPACES, {"metadata": {"name": "other"}})
    other = asking.api.target(CONFIG_MAPS, "other")
    for number in range(3):
        await asking.create(CONFIG_MAPS, config_map(f"c{number}"))
        await asking.api.create(other, config_map(f"d{number}"))

    first = asking.api.list(asking.target(CONFIG_MAPS), ListOptions(limit=2))
    second = asking.api.list(asking.target(CONFIG_MAPS), ListOptions(continue_token=first.continue_token))

    assert (names(first), names(second)) == (["c0", "c1"], ["c2"])


async def test_pages_of_a_selection_count_only_selected_objects(asking: ApiClient) -> None:
    for number in range(10):
        body = config_map(f"c{number}")
        body["metadata"]["labels"] = {"odd": str(number % 2)}
        await asking.create(CONFIG_MAPS, body)

    first = asking.api.list(asking.target(CONFIG_MAPS), ListOptions(limit=3, labels="odd=1"))
    rest = ListOptions(limit=3, labels="odd=1", continue_token=first.continue_token)
    second = asking.api.list(asking.target(CONFIG_MAPS), rest)

    assert (names(first), names(second)) == (["c1", "c3", "c5"], ["c7", "c9"])
    assert first.remaining == 0


async def test_a_token_older_than_the_history_is_expired(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        asking = ApiClient(api)
        for number in range(4):
            await asking.create(CONFIG_MAPS, config_map(f"c{number}"))
        first = api.list(asking.target(CONFIG_MAPS), ListOptions(limit=2))
        await asking.delete(CONFIG_MAPS, "c3")
        clock.advance(1000)
        await api.maintain_once()

        with pytest.raises(ResourceExpired, match="The provided continue parameter is too old"):
            api.list(asking.target(CONFIG_MAPS), ListOptions(continue_token=first.continue_token))


@given(st.lists(st.text(min_size=1) | st.binary(min_size=1).map(lambda data: base64.urlsafe_b64encode(data).decode())))
def test_a_malformed_token_is_a_bad_request(texts: list[str]) -> None:
    async def ask(folder: Path) -> None:
        async with opened(folder / "store.db") as api:
            for text in texts:
                with pytest.raises(BadRequest, match="continue key is not valid"):
                    api.list(ApiClient(api).target(CONFIG_MAPS), ListOptions(continue_token=text))

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(ask(Path(folder)))


async def test_a_list_at_an_exact_version_shows_that_state(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a", x="1"))
    then = asking.api.list(asking.target(CONFIG_MAPS)).resource_version
    await asking.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
    await asking.create(CONFIG_MAPS, config_map("b"))

    past = asking.api.list(
        asking.target(CONFIG_MAPS), ListOptions(resource_version=then, resource_version_match="Exact")
    )
    newer = asking.api.list(
        asking.target(CONFIG_MAPS), ListOptions(resource_version=then, resource_version_match="NotOlderThan")
    )

    assert [decode(item, dict)["data"] for item in past.items] == [{"x": "1"}]
    assert past.resource_version == then
    assert names(newer) == ["a", "b"]


async def test_a_version_from_the_future_is_a_timeout_to_retry(asking: ApiClient) -> None:
    with pytest.raises(ApiError, match="Too large resource version") as caught:
        asking.api.list(asking.target(CONFIG_MAPS), ListOptions(resource_version="9" * 17))

    assert (caught.value.code, caught.value.reason, caught.value.retry_after) == (504, "Timeout", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ListOptions(resource_version_match="Exact"), "is forbidden unless resourceVersion is provided"),
        (
            ListOptions(resource_version="5", resource_version_match="Nearly"),
            'supported values: "Exact", "NotOlderThan"',
        ),
        (ListOptions(resource_version="0", resource_version_match="Exact"), 'is forbidden for resourceVersion "0"'),
    ],
)
async def test_an_unusable_version_match_is_invalid(asking: ApiClient, options: ListOptions, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        asking.api.list(asking.target(CONFIG_MAPS), options)


async def test_a_token_together_with_a_version_is_rejected(asking: ApiClient) -> None:
    for number in range(3):
        await asking.create(CONFIG_MAPS, config_map(f"c{number}"))
    page = asking.api.list(asking.target(CONFIG_MAPS), ListOptions(limit=1))

    with pytest.raises(BadRequest, match="specifying resource version is not allowed when using continue"):
        asking.api.list(
            asking.target(CONFIG_MAPS), ListOptions(continue_token=page.continue_token, resource_version="5")
        )


async def test_a_collection_is_deleted_by_its_selector_and_returned_as_it_was(asking: ApiClient) -> None:
    for number in range(6):
        body = pod(f"p{number}", **({"nodeName": "one"} if number % 2 else {}))
        body["metadata"]["labels"] = {"go": str(number < 4)}
        await asking.create(PODS, body)

    deleted = await asking.api.delete_collection(asking.target(PODS), ListOptions(labels="go=True"))

    assert names(deleted) == ["p0", "p1", "p2", "p3"]
    assert asking.names(PODS) == ["p1", "p3", "p4", "p5"]
    assert "deletionTimestamp" in asking.get(PODS, "p1")["metadata"]
    assert "deletionTimestamp" not in decode(deleted.items[1], dict)["metadata"]
