"""Containers as real processes: shims, and the kubelet's client for them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon.base.clock import SystemClock
from tarragon.localcluster.kubelet.base import processes
from tarragon.localcluster.kubelet.base.files import try_lock, write_json
from tarragon.localcluster.kubelet.shim import shim, shim_client
from tarragon.localcluster.kubelet.shim.shim_client import LaunchSpec, ShimClient, ShimState, compile_shim
from tests.localcluster.kubelet.waiting import eventually

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([FP]) (.*)")


class Ward:
    """The containers of one test, in one folder; `crash` forgets them all, like a killed kubelet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = compile_shim(folder)
        self.name = secrets.token_hex(8)
        self.changes = asyncio.Event()
        self.shims = self._fresh()

    def _fresh(self) -> ShimClient:
        return ShimClient(self.program, SystemClock(), lambda _: self.changes.set())

    def home(self, number: int = 0) -> Path:
        return self.folder / f"container-{number}"

    def log(self, number: int = 0) -> Path:
        return self.folder / "logs" / f"{number}.log"

    def launch(self, *argv: str, number: int = 0, cwd: str = "/", **env: str) -> LaunchSpec:
        return LaunchSpec(
            identity=f"{self.name}.{number}",
            argv=argv,
            env={"PATH": os.environ["PATH"], **env},
            cwd=Path(cwd),
            log=self.log(number),
            grace=30,
        )

    def start(self, *argv: str, number: int = 0, cwd: str = "/", **env: str) -> None:
        self.shims.start(self.home(number), self.launch(*argv, number=number, cwd=cwd, **env))

    async def until(self, phase: str, number: int = 0) -> ShimState:
        async with asyncio.timeout(60):
            while (state := self.shims.state(self.home(number))) is None or state.phase not in {phase, "exited"}:
                await self.changes.wait()
                self.changes.clear()
        return state

    async def ended(self, number: int = 0) -> ShimState:
        return await self.until("exited", number)

    async def says(self, text: str, number: int = 0) -> None:
        await eventually(lambda: text in self.output(number))

    def lines(self, number: int = 0) -> list[tuple[str, str, str]]:
        """The stream, tag (F or P) and text of each line."""
        text = self.log(number).read_text() if self.log(number).exists() else ""
        return [match.groups() for line in text.splitlines() if (match := LINE.fullmatch(line))]  # type: ignore[misc]

    def output(self, number: int = 0) -> str:
        return "".join(text + ("\n" if end == "F" else "") for _, end, text in self.lines(number))

    async def crash(self) -> None:
        await self.shims.close()
        self.shims = self._fresh()

    def left_over(self) -> list[int]:
        return processes.pids_with_mark(f"{shim.MARK_VARIABLE}={self.name}.".encode())


@pytest.fixture
async def ward(tmp_path: Path) -> AsyncIterator[Ward]:
    ward = Ward(tmp_path)
    yield ward
    await ward.shims.close()
    shim_client.kill_marked(f"{shim.MARK_VARIABLE}={ward.name}.".encode())


def sh(script: str) -> tuple[str, str, str]:
    return "sh", "-c", script


async def test_output_is_logged_in_cri_format(ward: Ward) -> None:
    ward.start(*sh("echo one; echo; echo two"))

    state = await ward.ended()

    assert ward.lines() == [("stdout", "F", "one"), ("stdout", "F", ""), ("stdout", "F", "two")]
    assert (state.code, state.signal, state.lost) == (0, 0, False)
    assert 0 < state.started <= state.finished


async def test_stdout_and_stderr_are_marked(ward: Ward) -> None:
    ward.start(*sh("echo out; echo err >&2"))

    await ward.ended()

    assert sorted(ward.lines()) == [("stderr", "F", "err"), ("stdout", "F", "out")]


async def test_an_unfinished_line_is_logged_while_the_process_runs(ward: Ward) -> None:
    ward.start(*sh("printf 'step 1'; read forever < /dev/zero || sleep 1000"))

    await ward.says("step 1")
    ward.shims.stop(ward.home(), 0)
    await ward.ended()

    assert ward.lines()[0] == ("stdout", "P", "step 1")


async def test_output_without_a_final_line_break_is_kept_as_it_is(ward: Ward) -> None:
    ward.start("printf", "abc")

    await ward.ended()

    assert ward.output() == "abc"


async def test_long_lines_are_split_into_parts_of_one_line(ward: Ward) -> None:
    ward.start(*sh("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"))

    await ward.ended()

    assert ward.output() == "x" * 100_000 + "\nend\n"
    assert max(len(text) for _, _, text in ward.lines()) <= 16 * 1024


async def test_the_exit_code_of_the_program_is_recorded(ward: Ward) -> None:
    ward.start(*sh("exit 42"))

    assert (await ward.ended()).code == 42


async def test_the_exit_code_after_a_signal_is_128_plus_its_number(ward: Ward) -> None:
    ward.start(*sh("kill -SEGV $$"))

    state = await ward.ended()

    assert (state.code, state.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)


async def test_the_environment_is_the_given_one_and_the_mark(ward: Ward) -> None:
    ward.start("env", COLOUR="blue")

    await ward.ended()

    names = {line.partition("=")[0] for line in ward.output().splitlines()}
    assert names == {"PATH", "COLOUR", "TARRAGON_CONTAINER_ID"}


async def test_standard_input_is_empty(ward: Ward) -> None:
    ward.start("cat")

    assert (await ward.ended()).code == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("nope",), 'exec: "nope": executable file not found in $PATH'),
        (("/no/such/file",), 'exec: "/no/such/file": stat /no/such/file: no such file or directory'),
        (("./plain",), 'exec: "./plain": permission denied'),
        (("./orphan",), 'exec: "./orphan": the file is there, but the interpreter that its first line names is not'),
        (("./empty",), 'exec: "./empty": exec format error'),
        (("/usr",), 'exec: "/usr": is a directory'),
        (("sh", "a\0b"), 'exec: "sh": embedded null byte'),
    ],
)
async def test_the_error_of_a_command_that_cannot_start_is_recorded(
    ward: Ward, argv: tuple[str, ...], words: str
) -> None:
    (ward.folder / "plain").write_text("x")
    for name, text in {"orphan": "#!/no/such/interpreter\n", "empty": "\0"}.items():
        (ward.folder / name).write_text(text)
        (ward.folder / name).chmod(0o755)
    ward.start(*argv, cwd=str(ward.folder))

    state = await ward.ended()

    assert (state.code, state.error) == (128, words)


async def test_a_missing_working_directory_is_a_start_error(ward: Ward) -> None:
    ward.start("true", cwd="/no/such/folder")

    assert (await ward.ended()).error == 'chdir to cwd ("/no/such/folder") failed: no such file or directory'


async def test_a_stop_sends_sigterm_which_the_program_may_handle(ward: Ward) -> None:
    ward.start(*sh("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    await ward.says("ready")

    ward.shims.stop(ward.home(), 30)
    state = await ward.ended()

    assert (state.code, state.stopped) == (7, True)
    assert "bye\n" in ward.output()


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace_period(ward: Ward) -> None:
    ward.start(*sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    await ward.says("ready")

    ward.shims.stop(ward.home(), 0.2)

    assert (await ward.ended()).code == 137
    assert ward.left_over() == []


async def test_a_second_stop_shortens_the_grace_period(ward: Ward) -> None:
    ward.start(*sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    await ward.says("ready")

    ward.shims.stop(ward.home(), 1000)
    ward.shims.stop(ward.home(), 0)

    assert (await ward.ended()).code == 137


async def test_a_stop_before_the_shim_handles_signals_is_not_lost(ward: Ward) -> None:
    ward.start("sleep", "1000")
    ward.shims.stop(ward.home(), 30)

    state = await ward.ended()

    assert (state.code, state.lost) == (143, False)


ESCAPEES = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & (setsid sleep 1000 &) ; sleep 1000 &"


async def test_background_processes_of_a_container_are_killed_with_it(ward: Ward) -> None:
    ward.start(*sh(f"{ESCAPEES} exit 5"))

    state = await ward.ended()

    assert state.code == 5
    assert ward.left_over() == []


def running(*argv: str) -> list[int]:
    cmdline = "\0".join(argv).encode() + b"\0"
    return [pid for pid in processes.live_parents() if command_line(pid) == cmdline]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the process ended meanwhile
        return b""


async def test_a_process_with_another_environment_and_session_is_killed_too(ward: Ward) -> None:
    nap = f"2{os.getpid()}"  # no other process of this machine sleeps for just as long
    ward.start(*sh(f"env -i setsid sleep {nap} & exit 0"))

    await ward.ended()

    assert running("sleep", nap) == []


async def test_the_whole_process_tree_is_killed_after_the_grace_period(ward: Ward) -> None:
    ward.start(*sh(f"trap '' TERM; {ESCAPEES} echo ready; while :; do sleep 0.05; done"))
    await ward.says("ready")

    ward.shims.stop(ward.home(), 0.1)
    await ward.ended()

    assert ward.left_over() == []


async def test_a_container_whose_shim_is_killed_is_lost_and_its_processes_are_killed(ward: Ward) -> None:
    ward.start(*sh(f"{ESCAPEES} echo ready; sleep 1000"))
    await ward.says("ready")
    state = await ward.until("running")
    assert state.shim
    assert state.main

    os.kill(state.shim.pid, signal.SIGKILL)
    state = await ward.ended()

    assert (state.lost, state.code) == (True, 137)
    assert ward.left_over() == []


async def test_the_main_process_dies_with_its_shim(ward: Ward) -> None:
    ward.start("sleep", "1000")
    state = await ward.until("running")
    assert state.shim
    assert state.main
    await ward.shims.close()  # no kubelet is there to clean up

    os.kill(state.shim.pid, signal.SIGKILL)

    await eventually(lambda: not ward.left_over())


async def test_a_container_outlives_the_kubelet_and_is_adopted(ward: Ward) -> None:
    ward.start(*sh("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"))
    await ward.says("ready")

    await ward.crash()
    ward.shims.adopt(ward.home())
    ward.shims.stop(ward.home(), 30)

    assert (await ward.ended()).code == 9


async def test_the_exit_of_a_container_is_recorded_while_no_kubelet_runs(ward: Ward) -> None:
    ward.start(*sh("echo ready; sleep 0.1; exit 6"))
    await ward.says("ready")

    await ward.crash()
    await eventually(lambda: not ward.left_over())
    ward.shims.adopt(ward.home())

    assert (await ward.ended()).code == 6


async def test_a_container_whose_shim_died_while_no_kubelet_ran_is_lost(ward: Ward) -> None:
    ward.start(*sh(f"{ESCAPEES} echo ready; sleep 1000"))
    await ward.says("ready")
    state = await ward.until("running")
    assert state.shim
    await ward.crash()

    os.kill(state.shim.pid, signal.SIGKILL)
    await eventually(lambda: state.main and state.main.pid not in processes.live_parents())
    ward.shims.adopt(ward.home())
    state = await ward.ended()

    assert (state.lost, state.code) == (True, 137)
    assert ward.left_over() == []


async def test_a_reused_pid_is_not_mistaken_for_the_shim(ward: Ward) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        home = ward.home()
        home.mkdir()
        write_json(home / "spec.json", {"id": f"{ward.name}.0"})
        shim_of_old = {"pid": bystander.pid, "start": processes.start_time(bystander.pid)}
        write_json(home / "state.json", {"phase": "running", "boot": processes.boot_id(), "shim": shim_of_old})

        ward.shims.adopt(home)
        state = await ward.ended()

        assert state.lost
        assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()


async def test_a_late_shim_of_an_abandoned_container_starts_nothing(ward: Ward) -> None:
    home = ward.home()
    home.mkdir()
    launch = ward.launch("echo", "too late")
    spec = {"id": launch.identity, "argv": launch.argv, "env": {}, "cwd": "/", "log": str(ward.log()), "log_bytes": 99}
    write_json(home / "spec.json", {**spec, "grace": 1})  # the kubelet crashed here, before or after posix_spawn
    ward.shims.adopt(home)
    assert (await ward.ended()).void

    late = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", str(ward.program), str(home))

    assert await late.wait() == 3
    assert not ward.log().exists()


async def test_an_attempt_after_one_that_never_began_and_could_not_be_recorded_is_a_new_one(ward: Ward) -> None:
    home = ward.home()
    (home / "state.json.new").mkdir(parents=True)  # a full disk
    ward.shims.adopt(home)
    assert (await ward.ended()).void
    shutil.rmtree(home)

    ward.start("true")

    assert not (await ward.ended()).void


async def test_a_container_ends_when_its_folder_is_removed(ward: Ward) -> None:
    ward.start(*sh(f"{ESCAPEES} echo ready; sleep 1000"))
    await ward.says("ready")
    state = await ward.until("running")
    assert state.shim
    await ward.shims.close()

    shutil.rmtree(ward.home())

    await eventually(lambda: not ward.left_over() and state.shim and state.shim.pid not in processes.live_parents())


async def test_a_stopped_container_whose_folder_was_removed_has_ended(ward: Ward) -> None:
    ward.start(*sh(f"{ESCAPEES} echo ready; sleep 1000"))
    await ward.says("ready")
    await ward.until("running")

    shutil.rmtree(ward.home())
    ward.shims.stop(ward.home(), 30)
    state = await ward.ended()

    assert (state.lost, state.void, state.code) == (True, False, 137)
    assert ward.left_over() == []


async def test_an_adopted_container_ends_with_its_folder_even_if_its_shim_is_unknown(ward: Ward) -> None:
    home, identity = ward.home(), f"{ward.name}.0"
    home.mkdir()
    write_json(home / "spec.json", {"id": identity})
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT)  # a shim holds it before it writes its state
    assert try_lock(lock)
    program = await asyncio.create_subprocess_exec("sleep", "1000", env={**os.environ, shim.MARK_VARIABLE: identity})
    ward.shims.adopt(home)

    shutil.rmtree(home)
    state = await ward.ended()

    os.close(lock)
    assert (state.lost, state.void) == (True, False)
    assert await program.wait() == -signal.SIGKILL


async def test_two_shims_never_run_one_container(ward: Ward) -> None:
    ward.start("sleep", "1000")
    await ward.until("running")

    second = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", str(ward.program), str(ward.home()))

    assert await second.wait() == 3


def test_a_shim_of_another_version_does_not_serve_when_this_one_cannot_be_written(tmp_path: Path) -> None:
    compiled = compile_shim(tmp_path)
    compiled.write_bytes(b"another version")
    (tmp_path / "shim.pyc.new").mkdir()  # a full disk

    with pytest.raises(OSError, match=r"shim\.pyc"):
        compile_shim(tmp_path)


async def test_a_log_keeps_its_newest_lines_in_two_files(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_client, "LOG_BYTES", 100_000)
    ward.start(*sh("seq 1 20000"))

    await ward.ended()

    older = ward.log().with_name("0.log.1")
    assert ward.log().stat().st_size <= 100_000
    assert older.stat().st_size <= 100_000
    numbers = [int(line.split()[-1]) for file in (older, ward.log()) for line in file.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 20_001))


async def test_a_full_disk_loses_and_counts_lines_but_does_not_block_the_container(ward: Ward) -> None:
    """A limit on file sizes simulates the full disk: it fails writes in the same way, and can be lifted."""
    home = ward.home()
    go_on = ward.folder / "go on"
    home.mkdir()
    ward.log().parent.mkdir()
    # A pipe holds 64 KiB: when all this is written, the shim has read far more than fits on the disk.
    script = f"seq 1 50000; echo full > {ward.folder}/full; until [ -e '{go_on}' ]; do sleep 0.02; done; echo last"
    launch = ward.launch(*sh(script))
    spec = {"id": launch.identity, "argv": launch.argv, "env": dict(launch.env), "cwd": "/", "log": str(launch.log)}
    write_json(home / "spec.json", {**spec, "log_bytes": 10_000_000, "grace": 1})
    # The container has the same limit, but writes no large file.
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LIMITED, sys.executable, str(ward.program), str(home)
    )
    await eventually((ward.folder / "full").exists)

    resource.prlimit(started.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    go_on.touch()
    await started.wait()

    state = json.loads((home / "state.json").read_text())
    assert state["code"] == 0
    assert 0 < state["lost_lines"] < 50_000
    notices = re.findall(r"\[tarragon\] (\d+) lines of output could not be written here: File too large", ward.output())
    assert sum(map(int, notices)) == state["lost_lines"]
    assert ward.output().endswith("last\n")
    numbers = [int(text) for _, _, text in ward.lines() if text.isdigit()]
    assert len(numbers) == 50_000 - state["lost_lines"]
    assert numbers == sorted(set(numbers))


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
os.execv(sys.argv[1], [sys.argv[1], "-I", "-S", *sys.argv[2:]])
"""
