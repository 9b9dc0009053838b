from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon import __version__
from tarragon.base.errors import TarragonError
from tarragon.client.port import ALL_OBJECTS, Selector
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.daemon.background import STOP_PODS_SIGNAL, ensure_running, find_server, stop
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import ServerInfo, is_locked, process_start, read_server, write_server
from tests.lifecycle.background import CLOCK, a_home, client, eventually, killed, launch, up


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with a_home(tmp_path) as home:
        yield home


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def servers_of(home: Home) -> list[int]:
    """The processes that serve this home, found by their command line and environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if b"tests.lifecycle.serve" in command and f"TARRAGON_HOME={home.folder}\0".encode() in environment:
            found.append(int(process.name))
    return found


async def test_a_server_is_started_in_the_background_and_found_again(home: Home) -> None:
    first = await up(home)
    second = await up(home)

    assert first == second
    assert first.pid != os.getpid()
    assert os.getsid(first.pid) == first.pid, "it has a session of its own: no Ctrl-C of ours reaches it"
    assert first.version == __version__
    async with client(home, first) as cluster:
        assert (await cluster.get(NAMESPACES, Key("", "default"))).metadata.name == "default"


async def test_a_server_does_not_run_in_the_working_directory_of_its_client(home: Home) -> None:
    server = await up(home)

    assert os.readlink(f"/proc/{server.pid}/cwd") == str(home.folder)  # noqa: PTH115 - not a path of ours


async def test_objects_survive_a_stop_and_a_kill(home: Home) -> None:
    server = await up(home)
    async with client(home, server) as cluster:
        await cluster.create(CONFIG_MAPS, config_map("one"))
    assert await stop(home, CLOCK) == server

    server = await up(home)
    async with client(home, server) as cluster:
        await cluster.create(CONFIG_MAPS, config_map("two"))
    await killed(server)

    server = await up(home)
    async with client(home, server) as cluster:
        listing = await cluster.list(CONFIG_MAPS, Selector(field_selector="metadata.name!=kube-root-ca.crt"))
    assert [item.metadata.name for item in listing.items] == ["one", "two"]


async def test_a_stopped_server_removes_its_files(home: Home) -> None:
    server = await up(home)
    await stop(home, CLOCK)

    assert not server.is_running()
    assert read_server(home) is None
    assert await find_server(home) is None
    assert await stop(home, CLOCK) is None
    assert not home.store_path.with_name("state.db-wal").exists(), "the log is folded into the store"


async def test_five_clients_at_once_start_one_server(home: Home) -> None:
    found = await asyncio.gather(*(up(home) for _ in range(5)))

    assert len({server.pid for server in found}) == 1
    assert servers_of(home) == [found[0].pid]


async def test_of_five_servers_on_one_home_one_starts_and_the_others_name_it(home: Home) -> None:
    home.prepare()
    how = launch()
    environment = {**how.environment, "TARRAGON_HOME": str(home.folder)}
    started = [
        await asyncio.create_subprocess_exec(
            *how.command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(5)
    ]
    outcomes = [asyncio.create_task(process.communicate()) for process in started]
    server = await eventually(lambda: read_server(home))
    await eventually(lambda: sum(task.done() for task in outcomes) == 4)
    losers = [process for process in started if process.returncode is not None]

    assert [process.returncode for process in losers] == [1] * 4
    words = [(await outcome)[1].decode() for outcome in outcomes if outcome.done()]
    for output in words:
        assert output.startswith(f"a local cluster is already running in {home.folder}\nprocess {server.pid}, since 20")
        assert "stop it with `tarragon down`" in output
        assert "Traceback" not in output
    await stop(home, CLOCK)
    await asyncio.gather(*outcomes)


async def test_the_error_of_a_second_server_has_the_address_of_the_first(home: Home) -> None:
    server = await up(home)
    how = launch()
    environment = {**how.environment, "TARRAGON_HOME": str(home.folder)}
    second = await asyncio.create_subprocess_exec(*how.command, env=environment, stderr=subprocess.PIPE)
    _, output = await second.communicate()

    assert second.returncode == 1
    assert f"at {server.url}" in output.decode()


async def test_files_of_a_killed_server_do_not_mislead_clients(home: Home) -> None:
    dead = await up(home)
    await killed(dead)
    assert read_server(home) == dead
    assert await find_server(home) is None

    server = await up(home)
    assert server.pid != dead.pid


async def test_a_process_that_reuses_the_pid_of_a_dead_server_is_not_killed(home: Home) -> None:
    await up(home)
    await stop(home, CLOCK)
    ours = os.getpid()
    claimed = ServerInfo(
        url="https://127.0.0.1:1", pid=ours, process_start="1", started=CLOCK.now(), version=__version__
    )
    write_server(home, claimed)

    assert await stop(home, CLOCK) is None
    assert (await up(home)).pid != ours


async def test_a_process_that_does_not_answer_is_not_a_server(home: Home) -> None:
    await up(home)
    await stop(home, CLOCK)
    claimed = ServerInfo(
        url="https://127.0.0.1:1",
        pid=os.getpid(),
        process_start=process_start(os.getpid()),
        started=CLOCK.now(),
        version=__version__,
    )
    write_server(home, claimed)

    assert (await up(home)).pid != os.getpid()


async def test_a_server_reuses_the_port_token_and_authority_of_the_last_one(home: Home) -> None:
    first = await up(home)
    config = home.kubeconfig.read_bytes()
    await killed(first)
    second = await up(home)

    assert second.url == first.url
    assert home.kubeconfig.read_bytes() == config


async def test_a_port_that_is_in_use_is_replaced(home: Home) -> None:
    first = await up(home)
    await stop(home, CLOCK)
    port = int(first.url.rpartition(":")[2])
    squatter = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)
    async with squatter:
        second = await up(home)

        assert second.url != first.url
        assert second.url.encode() in home.kubeconfig.read_bytes()


async def test_a_requested_port_is_not_replaced(home: Home) -> None:
    squatter = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = squatter.sockets[0].getsockname()[1]
    async with squatter:
        with pytest.raises(TarragonError, match="did not start") as failed:
            await up(home, f"port={port}")

    assert "another program uses this port" in failed.value.cause


async def test_the_error_of_a_failed_start_has_the_servers_log(home: Home) -> None:
    with pytest.raises(TarragonError) as failed:
        await up(home, "fail")

    assert failed.value.summary == "the local cluster did not start"
    assert "exited with code 3" in failed.value.cause
    assert "it is a bad day" in failed.value.cause
    assert str(home.log) in failed.value.remedy
    assert (await up(home)).is_running(), "and the next attempt may well succeed"


async def test_the_error_of_a_failed_start_has_only_the_log_of_this_attempt(home: Home) -> None:
    home.prepare()
    home.log.write_text("an old story\n")
    with pytest.raises(TarragonError) as failed:
        await up(home, "fail")

    assert "an old story" not in failed.value.cause


async def test_a_missing_command_is_reported(home: Home) -> None:
    broken = launch()
    with pytest.raises(TarragonError):
        await ensure_running(home, CLOCK, type(broken)(command=("/no/such/python",), environment={}))


async def test_a_corrupt_store_is_reported_to_the_client(home: Home) -> None:
    home.prepare()
    home.store_path.write_bytes(b"this is no database" * 100)
    with pytest.raises(TarragonError) as failed:
        await up(home)

    assert "Traceback" not in failed.value.cause
    assert str(home.store_path) in failed.value.cause


async def test_an_idle_server_of_another_version_is_replaced(home: Home) -> None:
    old = await up(home, "version=0.0.1")
    new = await up(home)

    assert not old.is_running()
    assert new.version == __version__


async def test_a_server_of_another_version_with_pods_is_not_replaced(home: Home) -> None:
    old = await up(home, "version=0.0.1")
    async with client(home, old) as cluster:
        spec = {"containers": [{"name": "main", "image": "busybox"}], "nodeName": "elsewhere"}
        metadata = {"name": "one", "namespace": "default"}
        await cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    with pytest.raises(TarragonError) as refused:
        await up(home)
    assert "was started by Tarragon 0.0.1" in refused.value.summary
    assert "`tarragon down`" in refused.value.remedy
    assert old.is_running()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, STOP_PODS_SIGNAL], ids=lambda one: one.name
)
async def test_each_signal_stops_the_server_cleanly(home: Home, number: signal.Signals) -> None:
    server = await up(home)
    await stop(home, CLOCK, number)

    assert not server.is_running()
    assert "Traceback" not in home.log.read_text()
    why = "`tarragon down` asked for it" if number == STOP_PODS_SIGNAL else f"signal={number.name}"
    assert why in re.sub("\x1b\\[[0-9;]*m", "", home.log.read_text())


async def test_a_signal_during_the_start_stops_the_server_cleanly(home: Home) -> None:
    home.prepare()
    how = launch()
    environment = {**how.environment, "TARRAGON_HOME": str(home.folder)}
    for _ in range(5):
        process = await asyncio.create_subprocess_exec(*how.command, env=environment, stderr=subprocess.PIPE)
        await eventually(lambda: is_locked(home))
        process.send_signal(signal.SIGTERM)
        _, output = await process.communicate()

        assert process.returncode == 0, output
        assert b"Traceback" not in output
        assert not is_locked(home)


async def test_a_server_that_hangs_is_killed_after_a_timeout(home: Home) -> None:
    server = await up(home)
    os.kill(server.pid, signal.SIGSTOP)
    await stop(home, CLOCK, patience=0.5)

    assert not server.is_running()
    assert not is_locked(home)


async def test_an_idle_server_stops_although_its_operator_is_active(home: Home) -> None:
    server = await up(home, "idle=5")

    await eventually(lambda: not server.is_running())
    assert read_server(home) is None
    assert not is_locked(home)


async def test_a_watch_of_a_client_prevents_the_idle_timeout(home: Home) -> None:
    server = await up(home, "idle=10")
    async with client(home, server) as cluster:
        await cluster.create(CONFIG_MAPS, config_map("one"))
        events = cluster.watch(CONFIG_MAPS, ALL_OBJECTS, (await cluster.list(CONFIG_MAPS)).resource_version)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(15):
                await anext(events)
        assert server.is_running()
    await eventually(lambda: not server.is_running())


async def test_an_unfinished_pod_prevents_the_idle_timeout(home: Home) -> None:
    server = await up(home, "idle=10")
    spec = {"containers": [{"name": "main", "image": "busybox"}], "nodeName": "elsewhere"}
    metadata = {"name": "one", "namespace": "default"}
    async with client(home, server) as cluster:
        await cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    with pytest.raises(AssertionError, match="has not come true"):
        await eventually(lambda: not server.is_running(), seconds=15)

    async with client(home, server) as cluster:
        done = {"status": {"phase": "Succeeded"}}
        await cluster.patch(PODS, Key("default", "one"), done, subresource="status")
    await eventually(lambda: not server.is_running())


async def test_a_failing_companion_is_logged_and_affects_nothing_else(home: Home) -> None:
    server = await up(home, "buggy")

    await eventually(lambda: home.log.read_text().count("a bug in a companion") >= 2)
    assert await find_server(home) == server


async def test_all_files_in_the_home_are_readable_by_their_owner_only(home: Home) -> None:
    await up(home)

    readable_by_others = [path.name for path in home.folder.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert readable_by_others == []


async def test_a_large_log_is_rotated_when_a_server_starts(home: Home) -> None:
    home.prepare()
    home.log.write_bytes(b"x" * (2**20 + 1))
    await up(home)

    assert home.log.stat().st_size < 2**20
    assert home.log.with_suffix(".log.1").stat().st_size > 2**20
