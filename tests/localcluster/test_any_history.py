"""After any sequence of operations, lists and watches agree with a model that is a plain dictionary."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tarragon.base.clock import FakeClock
from tarragon.client.errors import AlreadyExists, Conflict, NotFound, ResourceExpired
from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import ListOptions, WatchOptions
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.storage.watch import Watch
from tests.localcluster.builders import CONFIG_MAPS, ApiClient, Json, config_map

NAMES = st.sampled_from(["a", "b", "c", "d"])
LABELS = st.sampled_from(["yes", "no"])
SELECTORS = ("", "chosen=yes")

State = dict[str, Json]


@dataclass(slots=True)
class Known:
    """A client's view: everything that its selector showed at one version."""

    selector: str
    version: str
    objects: State = field(default_factory=dict)


class AnyHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.lives = 0
        self.model: dict[str, Json] = {}
        self.clients: list[Known] = []
        self.oldest_promise = 0
        self.api = self.run(Api.open(self.path, self.clock))

    @property
    def path(self) -> Path:
        return self.folder / f"{self.lives}" / "store.db"

    def run(self, doing: Any) -> Any:
        return self.runner.run(doing)

    def teardown(self) -> None:
        self._all_catch_up(self.clients)
        self.run(self.api.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule(name=NAMES, chosen=LABELS)
    def create(self, name: str, chosen: str) -> None:
        body = config_map(name, count="0")
        body["metadata"]["labels"] = {"chosen": chosen}
        if name in self.model:
            with pytest.raises(AlreadyExists):
                self.run(ApiClient(self.api).create(CONFIG_MAPS, body))
        else:
            self.model[name] = self.run(ApiClient(self.api).create(CONFIG_MAPS, body))

    @rule(name=NAMES, chosen=LABELS)
    def label(self, name: str, chosen: str) -> None:
        self._patch(name, {"metadata": {"labels": {"chosen": chosen}}})

    @rule(name=NAMES, kept=st.booleans())
    def finalize(self, name: str, kept: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        thing = self.model.get(name)
        if kept and thing is not None and "deletionTimestamp" in thing["metadata"]:
            return  # an ending object takes no new finalizer
        self._patch(name, {"metadata": {"finalizers": ["example.com/kept"] if kept else None}})

    @rule(name=NAMES)
    def overwrite_with_an_old_version(self, name: str) -> None:
        thing = self.model.get(name)
        if thing is None:
            return
        stale = str(int(thing["metadata"]["resourceVersion"]) - 1)
        patch = {"metadata": {"resourceVersion": stale}, "data": {"count": "lost"}}
        with pytest.raises(Conflict):
            self.run(ApiClient(self.api).patch(CONFIG_MAPS, name, patch))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name not in self.model:
            with pytest.raises(NotFound):
                self.run(ApiClient(self.api).delete(CONFIG_MAPS, name))
            return
        self.run(ApiClient(self.api).delete(CONFIG_MAPS, name))
        self._reread(name)

    @rule(names=st.lists(NAMES, min_size=2, max_size=8))
    def write_all_at_once(self, names: list[str]) -> None:
        async def burst() -> None:
            asking = ApiClient(self.api)
            doing = [
                asking.patch(CONFIG_MAPS, name, {"data": {"count": str(number)}})
                for number, name in enumerate(names)
                if name in self.model
            ]
            await asyncio.gather(*doing)

        self.run(burst())
        for name in set(names) & self.model.keys():
            self._reread(name)
            assert self.model[name]["data"]["count"] == str(max(i for i, other in enumerate(names) if other == name))

    @rule(selector=st.sampled_from(SELECTORS))
    def list_as_a_client(self, selector: str) -> None:
        version, objects = self._listed(selector)
        self.clients.append(Known(selector, version, objects))

    @rule()
    def restart(self) -> None:
        self.run(self.api.close())
        self.api = self.run(Api.open(self.path, self.clock))

    @rule(names=st.lists(NAMES, max_size=4))
    def crash(self, names: list[str]) -> None:
        """Restart from the files as they are now, in the middle of writes."""

        async def interrupted() -> None:
            asking = ApiClient(self.api)
            doing = [
                asyncio.ensure_future(asking.patch(CONFIG_MAPS, name, {"data": {"count": "crash"}}))
                for name in names
                if name in self.model
            ]
            await asyncio.sleep(0)  # noqa: TID251 - lets them begin; nothing is waited for
            shutil.copytree(self.folder / f"{self.lives}", self.folder / f"{self.lives + 1}")
            await asyncio.gather(*doing)
            await self.api.close()

        self.run(interrupted())
        self.lives += 1
        self.api = self.run(Api.open(self.path, self.clock))
        for name in set(names) & self.model.keys():
            before = self.model[name]
            self._reread(name)
            assert self.model[name]["data"]["count"] in {before["data"]["count"], "crash"}

    @rule()
    def pass_time(self) -> None:
        self.clock.advance(400)
        self.run(self.api.maintain_once())
        self.oldest_promise = int(self._listed("")[0])

    @precondition(lambda self: self.clients)
    @rule(lazy=st.integers(0, 3))
    def clients_catch_up(self, lazy: int) -> None:
        """All clients but the laziest catch up, so that some return only after many changes."""
        self._all_catch_up(self.clients[lazy:])

    @invariant()
    def lists_are_as_the_model(self) -> None:
        assert self._listed("")[1] == self.model

    def _patch(self, name: str, patch: Json) -> None:
        if name not in self.model:
            with pytest.raises(NotFound):
                self.run(ApiClient(self.api).patch(CONFIG_MAPS, name, patch))
            return
        self.run(ApiClient(self.api).patch(CONFIG_MAPS, name, patch))
        self._reread(name)

    def _reread(self, name: str) -> None:
        try:
            self.model[name] = ApiClient(self.api).get(CONFIG_MAPS, name)
        except NotFound:
            thing = self.model.pop(name)
            assert not thing["metadata"].get("finalizers") or "deletionTimestamp" in thing["metadata"]

    def _listed(self, selector: str) -> tuple[str, State]:
        page = self.api.list(ApiClient(self.api).target(CONFIG_MAPS), ListOptions(labels=selector))
        what = {"apiVersion": "v1", "kind": "ConfigMap"}  # items of a list do not have it
        things: list[Json] = [{**what, **decode(item, dict)} for item in page.items]
        return page.resource_version, {thing["metadata"]["name"]: thing for thing in things}

    def _all_catch_up(self, clients: list[Known]) -> None:
        for client in list(clients):
            try:
                self._catch_up(client)
            except ResourceExpired:
                assert int(client.version) < self.oldest_promise
                self.clients = [one for one in self.clients if one is not client]
            else:
                assert client.objects == self._listed(client.selector)[1]

    def _catch_up(self, client: Known) -> None:
        options = WatchOptions(resource_version=client.version, labels=client.selector)
        watch = self.api.watch(ApiClient(self.api).target(CONFIG_MAPS), options)
        for event in self.run(_whatever_is_ready(watch)):
            thing: Json = decode(event.object, dict)
            name = thing["metadata"]["name"]
            assert (name in client.objects) is (event.type != "ADDED")
            if event.type == "DELETED":
                del client.objects[name]
            else:
                client.objects[name] = thing
        client.version = watch.resource_version


async def _whatever_is_ready(watch: Watch) -> list[Any]:
    """All events that a watch has ready. Closing it before it waits ends it."""
    events: list[Any] = []
    reading = asyncio.ensure_future(_read_all(watch, events))
    for _ in range(3):
        await asyncio.sleep(0)  # noqa: TID251 - lets the reader run until it waits; nothing is waited for
    watch.close()
    await reading
    return events


async def _read_all(watch: Watch, events: list[Any]) -> None:
    async for batch in watch:
        events += batch


TestAnyHistory = pytest.mark.slow(AnyHistory.TestCase)
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=40)
