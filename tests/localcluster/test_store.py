from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.base.errors import TarragonError
from tarragon.client.errors import ApiError, NotFound, ResourceExpired, Unavailable
from tarragon.client.port import Selector
from tarragon.kube.codec import decode
from tarragon.kube.core import CONFIG_MAPS as CONFIG_MAP_RESOURCE
from tarragon.kube.meta import Key
from tarragon.localcluster.api.requests import ListOptions, RequestTarget, WatchOptions
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.offline import OfflineCluster
from tarragon.localcluster.storage import database
from tarragon.localcluster.storage.database import SCHEMA, Database, HistoryRow, network_file_system
from tarragon.localcluster.storage.selectors import index_entry
from tarragon.localcluster.storage.store import HistoryWindow, Store
from tests.localcluster.builders import CONFIG_MAPS, ApiClient, Json, config_map, opened, ready

HERE = Path(__file__).parent


async def test_written_objects_survive_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        await ApiClient(api).create(CONFIG_MAPS, config_map("kept", a="1"))
        await ApiClient(api).create(CONFIG_MAPS, config_map("gone"))
        await ApiClient(api).delete(CONFIG_MAPS, "gone")
        before = api.list(ApiClient(api).target(CONFIG_MAPS))

    async with opened(tmp_path / "store.db") as api:
        after = api.list(ApiClient(api).target(CONFIG_MAPS))

    assert list(after.items) == list(before.items)
    assert after.resource_version == before.resource_version


async def test_revisions_continue_after_a_restart_even_if_the_newest_was_a_delete(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=1)) as api:
        await ApiClient(api).create(CONFIG_MAPS, config_map("a"))
        await ApiClient(api).delete(CONFIG_MAPS, "a")
        last = int(api.list(ApiClient(api).target(CONFIG_MAPS)).resource_version)
        await _pass_time(api, clock, 3600)

    async with opened(tmp_path / "store.db", clock) as api:
        created = await ApiClient(api).create(CONFIG_MAPS, config_map("a"))

    assert int(created["metadata"]["resourceVersion"]) > last


async def test_a_watch_resumes_across_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        asking = ApiClient(api)
        await asking.create(CONFIG_MAPS, config_map("a", x="1"))
        since = api.list(asking.target(CONFIG_MAPS)).resource_version
        await asking.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
        await asking.create(CONFIG_MAPS, config_map("b"))
        await asking.delete(CONFIG_MAPS, "a")

    async with opened(tmp_path / "store.db") as api:
        watch = api.watch(ApiClient(api).target(CONFIG_MAPS), WatchOptions(resource_version=since))
        events = await ready(watch)

    assert [(kind, thing["metadata"]["name"]) for kind, thing in events] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]


async def test_compaction_drops_old_history_but_no_objects(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        asking = ApiClient(api)
        await asking.create(CONFIG_MAPS, config_map("a"))
        since = api.list(asking.target(CONFIG_MAPS)).resource_version
        for number in range(20):
            await asking.patch(CONFIG_MAPS, "a", {"data": {"x": str(number)}})
        await asking.create(CONFIG_MAPS, config_map("gone"))
        await asking.delete(CONFIG_MAPS, "gone")
        await _pass_time(api, clock, 1000)

        with pytest.raises(ResourceExpired, match="too old resource version"):
            api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=since))
        assert asking.get(CONFIG_MAPS, "a")["data"] == {"x": "19"}

    assert _rows_beyond_the_living(tmp_path / "store.db") == 0


async def test_what_was_deleted_is_on_no_disk_once_it_has_left_the_window(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        await ApiClient(api).create(CONFIG_MAPS, config_map("job", token="hunter2"))
        await ApiClient(api).delete(CONFIG_MAPS, "job")
    soon = _all_bytes(tmp_path)
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        await _pass_time(api, clock, 1000)

    assert b"hunter2" in soon
    assert b"hunter2" not in _all_bytes(tmp_path)


def _all_bytes(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir())


async def test_the_window_is_bounded_by_revisions_too(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=1e9, revisions=5)) as api:
        asking = ApiClient(api)
        created = [await asking.create(CONFIG_MAPS, config_map(f"c{number}")) for number in range(20)]
        await _pass_time(api, clock, 61)
        versions = [one["metadata"]["resourceVersion"] for one in created]

        watch = api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=versions[-5]))
        with pytest.raises(ResourceExpired):
            api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=versions[-8]))

        assert len(await ready(watch)) == 4


async def test_the_window_is_bounded_by_bytes_too(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=1e9, bytes=2**20)) as api:
        asking = ApiClient(api)
        created = [await asking.create(CONFIG_MAPS, config_map(f"c{number}", x="x" * 2**18)) for number in range(8)]
        await _pass_time(api, clock, 61)
        versions = [one["metadata"]["resourceVersion"] for one in created]

        watch = api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=versions[-4]))
        with pytest.raises(ResourceExpired):
            api.watch(asking.target(CONFIG_MAPS), WatchOptions(resource_version=versions[-5]))

        assert len(await ready(watch)) == 3
        assert len(asking.names(CONFIG_MAPS)) == 8


async def test_history_within_the_window_survives_compaction_and_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "store.db", clock, HistoryWindow(seconds=300)) as api:
        asking = ApiClient(api)
        body = config_map("a")
        body["metadata"]["labels"] = {"chosen": "yes"}
        await asking.create(CONFIG_MAPS, body)
        await _pass_time(api, clock, 1000)
        since = api.list(asking.target(CONFIG_MAPS)).resource_version
        await asking.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"chosen": "no"}}})

    async with opened(tmp_path / "store.db", clock) as api:
        options = WatchOptions(resource_version=since, labels="chosen=yes")
        events = await ready(api.watch(ApiClient(api).target(CONFIG_MAPS), options))

    assert [(kind, thing["metadata"]["labels"]) for kind, thing in events] == [("DELETED", {"chosen": "yes"})]


async def test_an_interrupted_compaction_is_completed_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    path = tmp_path / "store.db"
    async with opened(path, clock, HistoryWindow(seconds=300)) as api:
        asking = ApiClient(api)
        await asking.create(CONFIG_MAPS, config_map("a"))
        for number in range(5):
            await asking.patch(CONFIG_MAPS, "a", {"data": {"x": str(number)}})
        newest = api.list(asking.target(CONFIG_MAPS)).resource_version
    with sqlite3.connect(path) as connection:  # as after the first batch of an interrupted compaction
        connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (int(newest),))
    connection.close()

    async with opened(path, clock) as api:
        await _pass_time(api, clock, 61)

    assert _rows_beyond_the_living(path) == 0


async def test_concurrent_writes_share_commits(tmp_path: Path) -> None:
    database, clock = CountingDatabase.open(tmp_path / "store.db", 0), FakeClock()
    assert isinstance(database, CountingDatabase)
    api = Api(Store(database, clock, index_entry, HistoryWindow()), clock)
    namespaces = RequestTarget(api.target(("", "v1", "namespaces")).served)

    names = [f"n{number}" for number in range(300)]
    await asyncio.gather(*(api.create(namespaces, {"metadata": {"name": name}}) for name in names))
    await api.close()

    assert sum(database.commits) == 300
    assert len(database.commits) < 150


async def test_a_full_disk_fails_writes_but_not_reads(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        asking = ApiClient(api)
        await asking.create(CONFIG_MAPS, config_map("before", x="1"))
        with full_disk(tmp_path):
            with pytest.raises(Unavailable, match="free space on the disk") as caught:
                await asking.create(CONFIG_MAPS, config_map("large", x="y" * 500_000))
            assert caught.value.code == 507
            assert asking.names(CONFIG_MAPS) == ["before"]
            assert asking.get(CONFIG_MAPS, "before")["data"] == {"x": "1"}

        await asking.create(CONFIG_MAPS, config_map("large", x="y" * 500_000))
        assert asking.names(CONFIG_MAPS) == ["before", "large"]


async def test_a_write_decided_on_top_of_a_failed_write_fails_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        asking = ApiClient(api)
        with full_disk(tmp_path):
            outcomes = await asyncio.gather(
                asking.create(CONFIG_MAPS, config_map("a", x="y" * 500_000)),
                asking.patch(CONFIG_MAPS, "a", {"data": {"x": "small"}}),
                asking.create(CONFIG_MAPS, config_map("a")),
                asking.delete(CONFIG_MAPS, "a"),
                return_exceptions=True,
            )

        codes = [outcome.code for outcome in outcomes if isinstance(outcome, ApiError)]
        assert codes == [507, 507, 507, 507]
        with pytest.raises(NotFound):
            asking.get(CONFIG_MAPS, "a")
        await asking.create(CONFIG_MAPS, config_map("a", x="after"))

    async with opened(tmp_path / "store.db") as api:
        assert ApiClient(api).get(CONFIG_MAPS, "a")["data"] == {"x": "after"}


async def test_a_conflict_with_a_queued_write_is_answered_after_its_commit(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        asking = ApiClient(api)
        order: list[str] = []

        async def create(mark: str) -> None:
            try:
                await asking.create(CONFIG_MAPS, config_map("a"))
                order.append(f"{mark} created")
            except ApiError as error:
                order.append(f"{mark} {error.reason}")

        await asyncio.gather(create("first"), create("second"))

    assert order == ["first created", "second AlreadyExists"]


async def test_a_cancelled_caller_does_not_undo_its_write(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        asking = ApiClient(api)
        writing = asyncio.ensure_future(asking.create(CONFIG_MAPS, config_map("a")))
        following = asyncio.ensure_future(asking.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}))
        for _ in range(2):
            await asyncio.sleep(0)  # noqa: TID251 - lets both be queued; nothing is waited for
        writing.cancel()

        assert (await following)["data"] == {"x": "1"}


async def test_a_write_to_a_closed_store_fails_immediately(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        await ApiClient(api).create(CONFIG_MAPS, config_map("kept"))

    async with asyncio.timeout(60):
        with pytest.raises(ApiError):
            await ApiClient(api).create(CONFIG_MAPS, config_map("late"))


async def test_a_newer_store_is_rejected_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(TarragonError, match="written by a newer Tarragon") as caught:
        async with opened(path):
            pass

    assert "upgrade Tarragon" in str(caught.value)
    assert path.read_bytes() == before


async def test_a_file_that_is_not_a_database_is_rejected_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database " * 100)

    with pytest.raises(TarragonError, match="is corrupt") as caught:
        async with opened(path):
            pass

    assert "nothing was deleted" in str(caught.value)
    assert f"mkdir {path}.broken" in str(caught.value)
    assert path.read_bytes().startswith(b"this is no database")


async def test_a_damaged_page_is_reported_as_corruption(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as api:
        for number in range(50):
            await ApiClient(api).create(CONFIG_MAPS, config_map(f"c{number}", x="y" * 2_000))
    with path.open("r+b") as file:
        file.seek(4096 * 5)
        file.write(random.Random(1).randbytes(4096 * 10))

    with pytest.raises(TarragonError, match="is corrupt"):
        async with opened(path):
            pass


async def test_a_row_that_is_not_an_object_is_reported_as_corruption(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as api:
        await ApiClient(api).create(CONFIG_MAPS, config_map("a"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE history SET body = '{' WHERE name = 'a'")
    connection.close()

    with pytest.raises(TarragonError, match="is corrupt") as caught:
        async with opened(path):
            pass

    assert "configmaps default/a" in str(caught.value)


async def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()

    with pytest.raises(TarragonError, match="a database of another program"):
        async with opened(path):
            pass


async def test_two_servers_cannot_open_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LOCK_WAIT_MS", 50)
    path = tmp_path / "store.db"
    async with opened(path):
        with pytest.raises(TarragonError, match="is in use") as caught:
            async with opened(path):
                pass
        with pytest.raises(TarragonError, match="is in use"):
            OfflineCluster.open(path)

    assert "tarragon down" in str(caught.value)


async def test_a_store_that_cannot_be_created_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(TarragonError, match="cannot use the store"):
        async with opened(tmp_path / "file" / "store.db"):
            pass


MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:35 / /home rw shared:5 - nfs4 server:/home rw,vers=4.2
41 40 0:36 / /home/local\\040disk rw - xfs /dev/sdb rw
42 22 0:40 / /mnt/share rw - cifs //server/share rw
43 22 0:41 / /mnt/remote rw - fuse.sshfs me@there: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/.tarragon/store.db", "nfs4"),
        ("/home/local disk/store.db", ""),
        ("/homeless/store.db", ""),
        ("/mnt/share/x", "cifs"),
        ("/mnt/remote/x", "fuse.sshfs"),
        ("/var/x", ""),
    ],
)
def test_network_file_systems_are_detected_by_the_innermost_mount(path: str, kind: str) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


async def test_a_store_on_a_network_file_system_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"50 1 0:1 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(database, "_MOUNTS", table)

    with pytest.raises(TarragonError, match="network file system") as caught:
        async with opened(tmp_path / "store.db"):
            pass

    assert "set TARRAGON_HOME to a folder on a local disk" in str(caught.value)
    assert not (tmp_path / "store.db").exists()


async def test_objects_are_read_from_disk_while_no_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as api:
        asking = ApiClient(api)
        for name in ("b", "a"):
            body = config_map(name)
            body["metadata"]["labels"] = {"name": name}
            await asking.create(CONFIG_MAPS, body)
        await asking.create(CONFIG_MAPS, config_map("gone"))
        await asking.delete(CONFIG_MAPS, "gone")
        version = api.list(asking.target(CONFIG_MAPS)).resource_version

    reading = OfflineCluster.open(path)
    try:
        listing = await reading.list(CONFIG_MAP_RESOURCE, Selector("default"))
        chosen = await reading.list(CONFIG_MAP_RESOURCE, Selector(label_selector="name=b"))
        one = await reading.get(CONFIG_MAP_RESOURCE, Key("default", "a"))
        with pytest.raises(NotFound):
            await reading.get(CONFIG_MAP_RESOURCE, Key("default", "gone"))
        with pytest.raises(Unavailable, match="tarragon up"):
            await reading.delete(CONFIG_MAP_RESOURCE, Key("default", "a"))
    finally:
        reading.close()

    assert [thing.metadata.name for thing in listing.items] == ["a", "b"]
    assert [thing.metadata.name for thing in chosen.items] == ["b"]
    assert one.metadata.name == "a"
    assert listing.resource_version == version


async def test_a_crashed_store_can_be_read_without_write_permission(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not in tmp_path, which only its owner can enter
        async with opened(tmp_path / "store.db") as api:
            await ApiClient(api).create(CONFIG_MAPS, config_map("a"))
            answer = await asyncio.to_thread(_read_crashed_copy, tmp_path, Path(folder))

    assert (answer.stdout.strip(), answer.stderr) == ("a", "")


def test_a_missing_store_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TarragonError, match="there is no local cluster") as caught:
        OfflineCluster.open(tmp_path / "store.db")

    assert "tarragon up" in str(caught.value)


@pytest.mark.slow
async def test_acknowledged_writes_survive_kill_9_and_none_is_partial(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    dice = random.Random(20261121)
    acknowledged: dict[str, int] = {}

    for generation in range(12):
        acknowledged |= _crash(path, generation, dice.randrange(1, 400))
        async with opened(path) as api:
            found = api.list(ApiClient(api).target(CONFIG_MAPS), ListOptions())
            counters: dict[str, Json] = {}
            for item in found.items:
                thing: Json = decode(item, dict)
                counters[thing["metadata"]["name"]] = thing["data"]

        for name, count in acknowledged.items():
            assert int(counters[name]["count"]) >= count
        for data in counters.values():
            assert data["twin"] == data["count"]


def _crash(path: Path, generation: int, after: int) -> dict[str, int]:
    """Kill a writer after it has acknowledged `after` writes. Returns the acknowledged writes."""
    command = [sys.executable, str(HERE / "crashing_writer.py"), str(path), str(generation)]
    acknowledged: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as writer:
        assert writer.stdout is not None
        for number, line in enumerate(writer.stdout):
            if number == after:
                writer.send_signal(signal.SIGKILL)
            if line.endswith("\n"):  # writes printed before the kill count, except an incomplete line
                name, _, count = line.strip().partition(" ")
                acknowledged[name] = max(int(count), acknowledged.get(name, 0))
    assert writer.returncode == -signal.SIGKILL
    return acknowledged


def _read_crashed_copy(source: Path, image: Path) -> subprocess.CompletedProcess[str]:
    """Copy the files as a crash would leave them, and read the copy as a user without write permission."""
    for name in ("store.db", "store.db-wal"):
        shutil.copy(source / name, image / name)
        (image / name).chmod(0o444)
    image.chmod(0o555)
    try:
        return _run("unprivileged_reader.py", str(image / "store.db"))
    finally:
        image.chmod(0o755)


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}


class CountingDatabase(Database):
    """Records the number of rows of each commit."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self.commits: list[int] = []

    def append(self, rows: Sequence[HistoryRow]) -> None:
        super().append(rows)
        self.commits.append(len(rows))


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Simulate a full disk: limit the size of files of this process to the largest one in the folder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 50_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def _pass_time(api: Api, clock: FakeClock, seconds: float) -> None:
    """Advance the clock and let the server run its maintenance once."""
    clock.advance(seconds)
    await api.maintain_once()


def _rows_beyond_the_living(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        query = "SELECT (SELECT count(*) FROM history) - (SELECT count(*) FROM current)"
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()
