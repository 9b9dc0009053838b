"""The log wrapper is transparent: exit codes, signals, stdin and output are those of the command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tarragon.localcluster.kubelet.shim.shim import MARK_VARIABLE
from tarragon.plan.objects.logs import _WRAPPER
from tests.logs.programs import Container, ended

PRINT = "import sys; print(sys.argv[1:])"


def sh(script: str) -> tuple[str, str, str]:
    return "sh", "-c", script


@pytest.mark.parametrize("code", [0, 1, 2, 42, 130, 137, 255])
def test_the_exit_code_is_that_of_the_command(any_container: Container, code: int) -> None:
    assert any_container.run(*sh(f"exit {code}")).code == code


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT", "USR1", "PIPE", "ABRT"])
def test_a_death_by_signal_is_128_and_its_number(container: Container, name: str) -> None:
    assert container.run(*sh(f"kill -{name} $$")).code == 128 + signal.Signals[f"SIG{name}"].value


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2", "WINCH", "CONT", "QUIT", "ALRM", "RTMIN"])
def test_signals_reach_the_command(any_container: Container, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    program = f"""
import os, signal, sys, time
def caught(number, _):
    os.write(1, b"caught\\n")
    os._exit(7)
signal.signal({int(number)}, caught)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)  # `pause` would sleep through a signal that came just before it
"""
    process = any_container.start(any_container.python, "-c", program)
    assert process.stdout is not None
    assert b"ready" in process.stdout.readline()

    process.send_signal(number)

    result = ended(process)
    assert (result.code, result.messages) == (7, ["caught"])


def test_the_wrapper_waits_for_a_command_that_handles_sigterm(any_container: Container) -> None:
    script = "trap 'echo saving; sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    process = any_container.start(*sh(script))
    assert process.stdout is not None
    process.stdout.readline()

    process.terminate()

    result = ended(process)
    assert (result.code, result.messages) == (0, ["saving", "saved"])


def test_a_signal_before_the_start_of_the_command_is_not_lost(any_container: Container) -> None:
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        process = any_container.start("sleep", "60")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
        process.terminate()

        assert ended(process).code in {128 + 15, -15}  # the latter before the wrapper had installed its handlers


def test_a_sigterm_to_the_process_group_reaches_the_command_once(container: Container) -> None:
    """The process kubelet signals the process group of a container."""
    script = "trap 'echo caught' TERM; echo ready; while :; do [ -e \"$END\" ] && exit 0; done"
    end = container.ending
    process = container.start(
        *sh(script), start_new_session=True, env={**container.env, "END": str(end), MARK_VARIABLE: "x"}
    )
    assert process.stdout is not None
    process.stdout.readline()

    os.killpg(process.pid, signal.SIGTERM)
    assert b"caught" in process.stdout.readline()
    end.write_text("x")

    assert ended(process).messages == []


def test_stdin_reaches_the_command(any_container: Container) -> None:
    result = any_container.run(*sh("read a; read b; echo $b $a"), stdin=b"one\ntwo\n")

    assert result.messages == ["two one"]


def test_a_missing_command_gives_the_error_of_a_shell(any_container: Container, tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")

    missing, refused = any_container.run("trainn"), any_container.run(str(plain))

    assert (missing.code, missing.messages) == (127, ['exec: "trainn": no such file or directory'])
    assert (refused.code, refused.lines[0]["severity"]) == (126, "ERROR")


def test_background_processes_of_a_command_are_not_waited_for(container: Container) -> None:
    result = container.start(*sh("sleep 60 & echo $!; exit 3"))
    assert result.stdout is not None
    line = result.stdout.readline()

    assert result.wait(20) == 3
    os.kill(int(re.findall(rb'"message":"(\d+)"', line)[0]), signal.SIGKILL)
    ended(result)


def test_all_output_before_the_end_is_logged(container: Container) -> None:
    for _ in range(20):
        result = container.run(*sh("seq 200; seq 200 >&2; kill -KILL $$"))

        assert result.code == 137
        assert result.messages == [*map(str, range(1, 201))] * 2


def test_a_closed_log_ends_the_command_as_without_the_wrapper(container: Container) -> None:
    process = container.start("yes")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(20) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    process.stderr.close()


def test_a_command_may_close_its_output_and_continue(container: Container) -> None:
    result = container.run(*sh("exec >&- 2>&-; sleep 0.2; exit 5"))

    assert result.code == 5


def test_the_last_lines_of_a_failure_are_its_termination_message(any_container: Container) -> None:
    any_container.run(*sh('echo one; echo \'{"message": "two", "loss": 1}\'; exit 1'))

    assert any_container.ending.read_text() == "one\ntwo"


def test_the_termination_message_is_as_long_as_kubernetes_allows(container: Container) -> None:
    container.run(*sh("seq 1000; exit 1"))
    assert container.ending.read_text().splitlines() == [str(number) for number in range(921, 1001)]


def test_a_termination_message_of_the_command_itself_is_kept(container: Container) -> None:
    container.run(*sh(f"echo mine > {container.ending}; echo x; exit 1"))

    assert container.ending.read_text() == "mine\n"


def test_a_successful_command_has_no_termination_message(container: Container) -> None:
    container.run(*sh("echo x"))

    assert not container.ending.exists()


def run_as_in_a_pod(container: Container, path: str, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command of the pod, with only the programs in a folder on PATH."""
    argv = ["sh", "-c", _WRAPPER, str(container.scripts / "json_logs.py"), *command]
    env = {**container.env, "PATH": path}
    return subprocess.run(argv, env=env, capture_output=True, check=False, timeout=60)


def folder_with(folder: Path, **programs: str) -> str:
    folder.mkdir()
    for name, target in {"sh": "/bin/sh", "echo": "/bin/echo", **programs}.items():
        (folder / name).symlink_to(target)
    return str(folder)


def test_the_command_runs_on_whatever_python_the_image_has(any_container: Container, tmp_path: Path) -> None:
    path = folder_with(tmp_path / "bin", python=any_container.python)

    ran = run_as_in_a_pod(any_container, path, "sh", "-c", "echo hello; exit 4")

    assert ran.returncode == 4
    assert b'"message":"hello"' in ran.stdout
    assert ran.stderr == b""


@pytest.mark.parametrize("broken", [{}, {"python3": "/bin/false"}, {"python": "/nowhere"}])
def test_without_a_python_the_command_runs_plain(container: Container, tmp_path: Path, broken: dict[str, str]) -> None:
    path = folder_with(tmp_path / "bin", **broken)

    ran = run_as_in_a_pod(container, path, "sh", "-c", "echo hello; exit 4")

    assert (ran.returncode, ran.stdout) == (4, b"hello\n")


def test_without_the_scripts_the_command_runs_plain(container: Container) -> None:
    for script in container.scripts.iterdir():
        script.unlink()

    ran = run_as_in_a_pod(container, os.environ["PATH"], sys.executable, "-c", "print('hello')")

    assert (ran.returncode, ran.stdout) == (0, b"hello\n")


def test_arguments_of_the_command_are_not_changed(container: Container) -> None:
    words = ["a b", "", "$HOME", "'", '"', "\\n", "*", "-c", "é"]

    ran = run_as_in_a_pod(
        container, os.environ["PATH"], sys.executable, "-c", "import sys; print(sys.argv[1:])", *words
    )

    assert repr(words).encode() in ran.stdout.replace(b"\\\\", b"\\").replace(b'\\"', b'"')
