"""Commands in a running container (exec), and access to its main process (attach)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.shim import exec_server
from tarragon.localcluster.kubelet.streaming import exec_client
from tarragon.localcluster.kubelet.streaming.exec_client import (
    CannotConnect,
    CannotExecute,
    ContainerProcess,
    ExecCommand,
)
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.test_containers import running
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import World

SLEEPS = "echo up; exec sleep 1000"


async def running_container(world: World, script: str = SLEEPS, **fields: Any) -> Path:
    """The run folder of a container, once it has printed `up`."""
    pod = await world.create(
        "p", container_json(command=["sh", "-c", script], **fields), **_volume(fields), restartPolicy="Never"
    )
    world.start_kubelet()
    await world.says("up")
    return NodeFolder(world.node).pod(pod["metadata"]["uid"]).run("main", 0)


def _volume(fields: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "emptyDir": {}}]} if "volumeMounts" in fields else {}


async def output(command: ContainerProcess) -> bytes:
    received = b""
    while data := await command.stdout.read():
        received += data
    return received


async def until(command: ContainerProcess, text: bytes) -> bytes:
    received = b""
    async with asyncio.timeout(60):
        while text not in received:
            data = await command.stdout.read()
            assert data, f"has ended with {received!r}"
            received += data
    return received


async def test_a_command_has_the_environment_folder_and_paths_of_its_container(world: World, tmp_path: Path) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    env = [{"name": "COLOUR", "value": "blue"}]
    run = await running_container(world, "echo 7 > /data/x; echo up; sleep 1000", volumeMounts=mounts, env=env,
                      workingDir=str(tmp_path))  # fmt: skip

    ended = await exec_client.run(run, ["sh", "-c", "echo $COLOUR $PWD; cat /data/x; echo bad >&2; exit 3"], seconds=30)

    assert ended.code == 3
    assert sorted(ended.output.decode().splitlines()) == sorted([f"blue {tmp_path}", "7", "bad"])


async def test_a_command_that_cannot_start_fails_with_the_message_of_a_runtime(world: World) -> None:
    run = await running_container(world)

    with pytest.raises(CannotExecute, match=r'exec: "nonsense": executable file not found in \$PATH'):
        await exec_client.run(run, ["nonsense"], seconds=30)


async def test_the_exit_code_after_a_signal_is_128_plus_its_number(world: World) -> None:
    run = await running_container(world)

    assert (await exec_client.run(run, ["sh", "-c", "kill -TERM $$"], seconds=30)).code == 143


async def test_megabytes_are_streamed_in_both_directions(world: World) -> None:
    run = await running_container(world)
    data = bytes(range(256)) * 40_000

    async with await exec_client.start(run, ExecCommand(argv=["cat"], has_stdin=True)) as command:
        reading = asyncio.create_task(output(command))
        assert command.stdin
        await command.stdin.write(data)
        await command.close_stdin()

        assert await reading == data
        assert await command.exit_code() == 0


async def test_a_command_on_a_terminal_gets_the_window_size(world: World) -> None:
    run = await running_container(world)

    async with await exec_client.start(run, ExecCommand(argv=["sh"], has_stdin=True, tty=True)) as command:
        assert command.stdin
        command.stdin.resize(132, 43)
        await command.stdin.write(b"stty size; echo $TERM; exit 4\n")

        received = await output(command)
        assert b"43 132\r\nxterm\r\n" in received
        assert await command.exit_code() == 4


async def test_a_command_is_killed_with_its_children_after_its_timeout(world: World, tmp_path: Path) -> None:
    run = await running_container(world)
    nap = f"1{os.getpid()}"  # no other process of this machine sleeps for just as long
    children_started, seconds = tmp_path / "children_started", 0.5

    while not children_started.exists():  # wait for the children: a busy machine takes longer
        with pytest.raises(TimeoutError):
            await exec_client.run(
                run, ["sh", "-c", f"timeout 10000 sleep {nap} & touch {children_started}; wait"], seconds=seconds
            )
        seconds *= 2

    await eventually(lambda: not running("sleep", nap))


async def test_a_command_ends_with_its_container(world: World) -> None:
    run = await running_container(world, "echo up; trap 'exit 0' TERM; while :; do sleep 0.05; done")

    async with await exec_client.start(run, ExecCommand(argv=["sh", "-c", "echo in; env -i sleep 999"])) as command:
        await until(command, b"in")
        await world.delete()

        assert await command.exit_code() == 137
    await world.vanished()
    assert not world.processes()


async def test_commands_can_be_started_after_a_restart_of_the_kubelet(world: World) -> None:
    run = await running_container(world)
    await world.stop_kubelet()
    world.start_kubelet()

    assert (await exec_client.run(run, ["echo", "here"], seconds=30)).output == b"here\n"


async def test_closing_a_terminal_sends_a_hangup(world: World, tmp_path: Path) -> None:
    run = await running_container(world)
    mark = tmp_path / "heard"

    script = f"trap 'echo yes > {mark}; exit' HUP; echo in; while :; do sleep 0.05; done"
    async with await exec_client.start(run, ExecCommand(argv=["sh", "-c", script], tty=True)) as command:
        await until(command, b"in")

    await eventually(mark.exists)


async def test_commands_cannot_start_in_an_ended_container(world: World) -> None:
    run = await running_container(world, "echo up")
    await world.until(lambda pod: pod["status"]["containerStatuses"][0]["state"].get("terminated"))

    with pytest.raises(CannotConnect):
        await exec_client.run(run, ["true"], seconds=30)


async def test_an_invalid_request_is_rejected_and_the_container_goes_on(world: World) -> None:
    run = await running_container(world)
    for nonsense in (b"hello\n", b'{"exec": 7}\n', b"[]\n", b'{"exec": ["true"], "tty": false}\n'):
        with exec_client.short_path(run) as place:
            reader, writer = await asyncio.open_unix_connection(place / exec_server.SOCKET)
        writer.write(nonsense)
        async with asyncio.timeout(60):
            assert b"does not understand" in await reader.read()
        writer.close()

    assert (await exec_client.run(run, ["echo", "here"], seconds=30)).output == b"here\n"


async def test_fifty_commands_run_at_once(world: World) -> None:
    run = await running_container(world)

    async with asyncio.timeout(60):
        ended = await asyncio.gather(*(exec_client.run(run, ["echo", str(n)], seconds=50) for n in range(50)))

    assert [each.output for each in ended] == [b"%d\n" % n for n in range(50)]


async def test_attach_reaches_the_main_process_and_its_log_stays_complete(world: World) -> None:
    run = await running_container(
        world, "echo up; while read x; do echo got $x; done; echo bye", stdin=True, stdinOnce=True
    )

    async with await exec_client.attach(run) as container:
        assert container.stdin
        await container.stdin.write(b"one\n")
        await until(container, b"got one")
        await container.close_stdin()
        assert (await output(container)).endswith(b"bye\n")

    assert await world.log() == "up\ngot one\nbye\n"


async def test_stdin_stays_open_for_the_next_client_unless_stdin_once_is_set(world: World) -> None:
    run = await running_container(world, "echo up; while read x; do echo got $x; done", stdin=True)

    for word in (b"one", b"two"):
        async with await exec_client.attach(run) as container:
            assert container.stdin
            await container.stdin.write(word + b"\n")
            await until(container, b"got " + word)


async def test_a_container_with_a_terminal_can_be_attached_to(world: World) -> None:
    run = await running_container(world, "echo up; exec sh", stdin=True, tty=True)

    async with await exec_client.attach(run) as container:
        assert container.stdin
        container.stdin.resize(90, 30)
        await container.stdin.write(b"stty size; exit\n")
        assert b"30 90\r\n" in await output(container)


async def test_a_slow_attached_client_loses_no_output(world: World) -> None:
    run = await running_container(world, "echo up; read x; seq 200000; echo end", stdin=True)

    async with await exec_client.attach(run) as container:
        assert container.stdin
        await container.stdin.write(b"go\n")
        received = await output(container)

    assert received.count(b"\n") == 200_001


async def test_attaching_to_a_container_without_stdin_only_shows_output(world: World) -> None:
    run = await running_container(world, "echo up; while [ ! -e go ]; do sleep 0.02; done; echo out; echo err >&2")

    async with await exec_client.attach(run) as container:
        assert container.stdin is None
        await exec_client.run(run, ["touch", "go"], seconds=30)
        assert await output(container) == b"out\n"
        assert container.stderr
        assert await container.stderr.read() == b"err\n"


async def test_a_folder_with_a_long_name_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    world = await World.make(folder)
    try:
        run = await running_container(world)
        assert (await exec_client.run(run, ["echo", "in"], seconds=30)).output == b"in\n"
    finally:
        await world.close()
