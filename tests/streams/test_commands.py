"""kubectl exec, cp, attach and run against the embedded cluster, over WebSockets and SPDY."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tarragon.localcluster.kubelet.base import processes
from tests.e2e.user import eventually
from tests.streams.conftest import User

pytestmark = [pytest.mark.kubectl, pytest.mark.slow, pytest.mark.timeout(300)]


def unique(user: User, name: str) -> str:
    return f"{name}-{'ws' if user.websockets else 'spdy'}"


def test_exec_has_the_containers_variables_and_returns_the_exit_code(user: User) -> None:
    ended = user.kubectl("exec", "p", "--", "sh", "-c", "echo $COLOUR; echo bad >&2; exit 3")

    assert (ended.code, ended.out) == (3, "blue\n")
    assert ended.err == "bad\ncommand terminated with exit code 3\n"


def test_stdin_and_its_end_reach_the_command(user: User) -> None:
    assert user.kubectl("exec", "-i", "p", "--", "sh", "-c", "cat; echo over", stdin="hello\n").out == "hello\nover\n"


def test_a_missing_command_gives_the_error_of_a_container_runtime(user: User) -> None:
    ended = user.kubectl("exec", "p", "--", "nonsense")

    assert ended.code == 1
    assert ended.err == (
        "error: Internal error occurred: error executing command in container: failed to exec in container: "
        'exec: "nonsense": executable file not found in $PATH\n'
    )


def test_an_unknown_container_gives_the_error_of_a_real_server(user: User) -> None:
    assert user.kubectl("exec", "nobody", "--", "true").err == 'Error from server (NotFound): pods "nobody" not found\n'
    other = user.kubectl("exec", "p", "-c", "x", "--", "true")
    assert other.err == "Error from server (BadRequest): container x is not valid for pod p\n"


def test_kubectl_cp_copies_a_hundred_megabytes_into_and_out_of_a_volume(user: User, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 100
    (tmp_path / "there").write_bytes(data)

    copied_in = user.kubectl("cp", str(tmp_path / "there"), "p:/data/big")
    summed = user.kubectl("exec", "p", "--", "sh", "-c", "md5sum < /data/big")
    back = user.kubectl("cp", "p:/data/big", str(tmp_path / "back"))

    assert (copied_in.code, back.code) == (0, 0), copied_in.err + back.err
    assert summed.out.split()[0] == hashlib.md5(data).hexdigest()  # noqa: S324 - nobody is to be kept out
    assert (tmp_path / "back").read_bytes() == data


def test_a_folder_is_copied_with_its_contents(user: User, tmp_path: Path) -> None:
    (tmp_path / "there/below").mkdir(parents=True)
    (tmp_path / "there/below/x").write_text("7")
    target = f"/data/{unique(user, 'folder')}"

    assert user.kubectl("cp", str(tmp_path / "there"), f"p:{target}").code == 0
    assert user.kubectl("cp", f"p:{target}", str(tmp_path / "back")).code == 0

    assert (tmp_path / "back/below/x").read_text() == "7"


def test_a_shell_on_a_terminal_has_the_window_size(user: User) -> None:
    ended = user.terminal("exec", "-it", "p", "--", "sh", steps=[("# ", "stty size; tty; exit 5\n")])

    assert "33 111\r\n" in ended.out
    assert "/dev/pts/" in ended.out
    assert ended.code == 5


def test_kubectl_run_attaches_to_a_pod_and_deletes_it(user: User) -> None:
    name = unique(user, "shell")
    words = ("run", "-it", "--rm", name, "--image=python:3", "--restart=Never", "--", "sh")

    ended = user.terminal(*words, steps=[("prompt", "\n"), ("# ", "echo $((6*7)); exit 4\n")])

    assert "42\r\n" in ended.out
    assert f'pod "{name}" deleted' in ended.out
    assert ended.code == 4
    assert user.kubectl("get", "pod", name).code == 1


def test_attach_works_repeatedly_and_the_log_has_all_output(user: User) -> None:
    name = unique(user, "talks")
    user.pod(name, "echo up; while read x; do echo got $x; done", stdin=True)

    for word in ("one", "two"):
        attached = user.begin("attach", "-i", name)
        assert attached.stdin
        assert attached.stdout
        attached.stdin.write(f"{word}\n".encode())
        attached.stdin.flush()
        assert attached.stdout.readline() == f"got {word}\n".encode()
        attached.kill()
        attached.communicate()

    assert user.kubectl("logs", name).out == "up\ngot one\ngot two\n"


def test_a_command_ends_when_kubectl_is_killed(user: User) -> None:
    running = user.begin("exec", "p", "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert running.stdout
    pid = int(running.stdout.readline())

    running.kill()
    running.communicate()

    eventually(lambda: pid not in processes.live_parents())


def test_fifty_concurrent_commands(user: User) -> None:
    running = [user.begin("exec", "p", "--", "echo", str(number)) for number in range(50)]

    results = [(*process.communicate(timeout=60), process.returncode) for process in running]

    assert results == [(f"{number}\n".encode(), b"", 0) for number in range(50)]


def test_stopping_the_server_ends_exec_commands_but_not_containers(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.start()
    user.pod("p", "echo $$$$ > pid; exec sleep 1000")
    try:
        sees_it = "until [ -s pid ]; do sleep 0.02; done; echo $$ $(cat pid); exec sleep 1000"
        running = user.begin("exec", "p", "--", "sh", "-c", sees_it)
        assert running.stdout
        command, container = map(int, running.stdout.readline().split())

        assert user.stop() == 0
        assert running.wait(timeout=60) != 0
        eventually(lambda: command not in processes.live_parents())
        assert container in processes.live_parents()

        user.start()
        assert user.kubectl("exec", "p", "--", "echo", "again").out == "again\n"
        interrupted = user.begin("exec", "p", "--", "sh", "-c", "echo $$; exec sleep 1000")
        assert interrupted.stdout
        command = int(interrupted.stdout.readline())
        user.stop(signal.SIGKILL)
        interrupted.communicate(timeout=60)
        eventually(lambda: command not in processes.live_parents())
        running.communicate()
    finally:
        subprocess.run(["tarragon", "down"], env=user.environment, timeout=60, capture_output=True, check=False)
