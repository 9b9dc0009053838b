"""The other commands against a real cluster in the background, and without one."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server
from tests.cli.conftest import Shell
from tests.cli.manifests import by_all_workers, command, group, job, python, worker
from tests.cli.tty import Tty

pytestmark = pytest.mark.timeout(300)

WAITS = "import time; print('here', flush=True); time.sleep(600)"
UP = "import time; open('up', 'w'); time.sleep(600)"
ONCE_UP = "import os, time\nwhile not os.path.exists('up'): time.sleep(0.02)"
"""For a worker: the job is not over before its parameter server has begun."""


def completed(shell: Shell, line: str) -> list[str]:
    """What bash would offer behind the last word."""
    words = line.split(" ")
    asked = {"_TARRAGON_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return [offer.partition(",")[2] for offer in replace(shell, variables=asked)().out.split()]


def test_before_anything_has_run_there_is_nothing_and_nothing_is_started(shell: Shell) -> None:
    listed = shell("list")
    missing = shell("get", "digits")

    assert (listed.code, listed.out) == (0, "")
    assert "No local cluster exists in" in listed.err
    assert (missing.code, missing.out) == (102, "")
    assert 'Error: job "digits" not found in namespace default' in missing.err
    assert not shell.home.exists()
    assert shell("down").err.startswith("The local cluster in ")


def test_a_job_is_submitted_seen_waited_for_and_deleted(shell: Shell) -> None:
    training = by_all_workers(worker("digits", "print('hello')", replicas=2))
    submitted = shell("submit", shell.file("job.yaml", training))
    waited = shell("wait", "@latest")
    row = shell("list").out.splitlines()
    wide = shell("list", "-A", "-o", "wide").out.splitlines()

    assert (submitted.code, submitted.out) == (0, "tfjob/digits\n")
    assert re.match(r"Succeeded  digits after \d+\.\d+ s", waited.out)
    columns = "NAME STATE READY GPUS QUEUE RESTARTS DURATION AGE PROGRESS OR REASON"
    assert " ".join(row[0].split()) == columns
    assert row[1].split()[:6] == ["digits", "Succeeded", "0/2", "-", "-", "0"]
    assert wide[1].split()[:3] == ["default", "digits", "Succeeded"]
    assert "TFJob   worker 2   local" in wide[1]
    assert shell("list", "-o", "name").out == shell("get", "tfjob/digits", "-o", "name").out == "tfjob/digits\n"
    assert json.loads(shell("get", "digits", "-o", "json").out)["kind"] == "TFJob"
    assert yaml.safe_load(shell("list", "-o", "yaml").out)["items"][0]["metadata"]["name"] == "digits"
    assert shell("list", "-l", "team=vision").err.startswith("No jobs in namespace default")
    assert shell("delete", "tfjobs/digits").out == "tfjob/digits deleted\n"
    assert shell("logs", "digits").out.count("hello") == 2


def test_a_name_that_is_nearly_right_is_told_the_nearest(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print(1)")))

    ended = shell("describe", "digit")

    assert ended.code == 102
    assert ended.err.splitlines()[-1] == "  did you mean digits?"
    assert shell("wait", "pod/digits").err.splitlines()[0] == "Error: unknown kind of job: pod"


def test_one_name_that_is_wrong_keeps_no_other_job_from_being_deleted(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print(1)")))

    ended = shell("delete", "nope", "digits", "never")

    assert ended.code == 102
    assert ended.out == "tfjob/digits deleted\n"
    assert 'Error: job "nope" not found in namespace default' in ended.err
    assert 'Error: job "never" not found in namespace default' in ended.err


def test_several_jobs_are_deleted_with_one_line_each(shell: Shell) -> None:
    for name in ("a", "b", "c"):
        shell("run", shell.file("job.yaml", worker(name, "print(1)")))

    ended = shell("delete", "--all")

    assert ended.out == "tfjob/a deleted\ntfjob/b deleted\ntfjob/c deleted\n"
    before, after = ended.err.splitlines()
    assert before.startswith("Deleting tfjob/a, tfjob/b and tfjob/c in default on local")
    assert re.fullmatch(r"Their logs are kept: .*tarragon logs JOB", after)


def test_a_job_that_never_began_promises_no_logs(shell: Shell) -> None:
    wants = {"limits": {"memory": "900Ti"}}
    shell("submit", shell.file("job.yaml", worker("digits", "print(1)", resources=wants)))

    ended = shell("delete", "digits")

    assert ended.out == "tfjob/digits deleted\n"
    assert "logs" not in ended.err


def test_what_is_stored_can_be_looked_at_when_no_cluster_runs(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print('hello')")))
    shell("down")

    listed = shell("list")
    described = shell("describe", "digits")

    assert "is not running; showing its last stored state" in listed.err
    assert listed.out.splitlines()[1].split()[:2] == ["digits", "Succeeded"]
    assert shell("logs", "digits", "--tail", "1").out == "[worker-0] hello\n"
    assert shell("wait", "digits").out.startswith("Succeeded  digits")
    assert "TFJobSucceeded" in described.out
    assert read_server(Home(shell.home)) is None


def test_a_list_that_is_watched_has_a_line_for_every_change_and_no_other(shell: Shell) -> None:
    shell("kubeconfig")
    watching = shell.start("list", "--watch")
    shell("run", shell.file("job.yaml", worker("digits", "import time; time.sleep(0.3)")))
    watching.until("Succeeded")
    shell("down")
    ended = watching.ended()

    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0][:2] == ["NAME", "STATE"]
    assert all(before != after for before, after in itertools.pairwise(rows))
    assert "Error: the local cluster stopped" in ended.err


def test_a_list_that_is_watched_lines_up_whatever_comes_and_tells_what_is_deleted(shell: Shell) -> None:
    shell("kubeconfig")
    watching = shell.start("list", "--watch")
    shell("run", shell.file("job.yaml", worker("digits", "")))
    shell("run", shell.file("longer.yaml", worker("digits-longer-name", "")))
    watching.until("digits-longer-name")
    shell("delete", "digits")
    watching.until("Deleted")
    shell("down")
    ended = watching.ended()

    lines = ended.out.splitlines()
    assert {line[lines[0].index("STATE") - 1] for line in lines} == {" "}
    assert all(line[lines[0].index("STATE")] != " " for line in lines)
    assert lines[-1].split()[:2] == ["digits", "Deleted"]


def test_a_job_whose_cluster_was_ended_is_interrupted_and_goes_on_with_it(shell: Shell) -> None:
    shell("submit", shell.file("job.yaml", worker("digits", WAITS, replicas=2)))
    going = shell.start("logs", "digits", "--follow")
    going.until("here")
    shell("down")
    remedy = going.ended().err

    row = shell("list").out.splitlines()[1]

    assert row.split()[:3] == ["digits", "Interrupted", "0/2"]
    assert row.endswith("resumes when the cluster starts")
    assert "`tarragon up` starts it and continues the job" in remedy
    assert shell("get", "digits").out.splitlines()[1].split()[:3] == ["digits", "Interrupted", "0/2"]
    described = shell("describe", "digits").out
    assert "Interrupted" in described
    assert "Running   " not in described.partition("REPLICA ")[2].partition("Folders:")[0]


def test_describe_of_a_job_without_addresses_here_has_no_column_for_them(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print(1)")))

    assert "HERE" not in shell("describe", "digits").out


def test_describe_tells_both_addresses_the_folders_and_the_events(shell: Shell) -> None:
    tells = "import os, time; print(os.environ['TF_CONFIG'], flush=True); time.sleep(600)"
    training = job("digits", PS=group(python(tells)), Worker=group(python(tells)))
    going = shell.start("run", shell.file("job.yaml", training))
    going.until("[worker-0]")

    while "TFJobRunning" not in (description := shell("describe", "digits").out):
        assert going.is_going

    found = re.search(
        r"worker-0 +Running +- +0 +local +(digits-worker-0\.default\.svc:2222) +(127\.0\.0\.1:\d+)", description
    )
    assert found is not None
    assert found[2] in shell("logs", "digits", "--type", "worker").out
    folder = re.search(r"logs of worker-0 +(\S+)", description)
    assert folder is not None
    assert Path(folder[1]).is_dir()
    assert re.search(r"Normal +TFJobRunning +tfjob/digits", description)
    going.signal(signal.SIGINT)
    going.ended()


def test_describe_still_knows_the_replicas_that_were_cleaned_up_with_their_job(shell: Shell) -> None:
    training = job("digits", PS=group(python(UP)), Worker=group(python(ONCE_UP)))
    shell("run", shell.file("job.yaml", training))

    output = shell("describe", "digits").out

    folder = re.search(r"logs of ps-0 +(\S+)", output)
    assert folder is not None
    assert Path(folder[1]).is_dir()
    assert re.search(r"Started +pod/digits-ps-0", output)


def test_describe_says_what_goes_on_after_the_end_and_how_it_is_ended(shell: Shell) -> None:
    training = json.loads(job("digits", PS=group(python(UP)), Worker=group(python(ONCE_UP))))
    training["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    shell("run", shell.file("job.yaml", json.dumps(training)), "--keep-pods")

    output = shell("describe", "digits").out

    assert "  still running: ps-0; with cleanPodPolicy None they hold memory until the job is deleted:" in output
    assert re.search(r"^    \S.* delete digits$", output, re.MULTILINE)


def test_a_change_starts_a_cluster_that_does_not_run_and_says_only_that(shell: Shell) -> None:
    for name in ("one", "two"):
        shell("run", shell.file("job.yaml", worker(name, "pass")))
    shell("down")

    deleted = shell("delete", "one")
    shell("down")
    missing = shell("delete", "one")
    refused = shell("suspend", "two")

    assert (deleted.code, deleted.out) == (0, "tfjob/one deleted\n")
    assert re.match(r"The cluster local \(\S+\) is not running; starting it\.\nDeleting tfjob/one ", deleted.err)
    assert missing.err.startswith("Error: ")
    assert refused.err.startswith("The cluster local ")


def test_logs_choose_replicas_lines_and_times(shell: Shell) -> None:
    says = "import os, time; print('one'); print('two ' + os.environ['HOSTNAME'], flush=True)\n"
    server, trainer = python(says + "open('up', 'w')"), python(says + ONCE_UP)
    training = by_all_workers(job("digits", PS=group(server), Worker=group(trainer, replicas=2)))
    shell("run", shell.file("job.yaml", training))

    assert shell("logs", "digits", "--replica", "worker-1").out == "[worker-1] one\n[worker-1] two digits-worker-1\n"
    assert shell("logs", "digits", "--type", "ps", "--no-prefix", "--tail", "1").out == "two digits-ps-0\n"
    assert len(shell("logs", "digits", "--grep", "^one$").out.splitlines()) == 3
    assert re.match(r"\[\S+\] \d{4}-\d\d-\d\dT\S+Z one\n", shell("logs", "digits", "--timestamps").out)
    assert shell("logs", "digits", "--since", "1h").out.count("one") == 3
    assert shell("logs", "digits", "--replica", "worker-7").code == 102
    assert shell("logs", "digits", "--replica", "1").out == shell("logs", "digits", "--replica", "worker-1").out
    assert shell("logs", "digits", "--replica", "0", "--type", "worker").out.startswith("[worker-0] one\n")
    both, none = shell("logs", "digits", "--replica", "0"), shell("logs", "digits", "--replica", "7")
    assert (both.code, none.code) == (102, 102)
    assert "say which: --replica ps-0 or --replica worker-0" in both.err
    assert "the replicas are ps-0, worker-0 and worker-1" in none.err
    of_type = shell("logs", "digits", "--replica", "9" * 5000, "--type", "ps")
    assert (of_type.code, len(of_type.err) < 200) == (102, True)
    assert "no replica among those of type ps has the index 999" in of_type.err
    assert shell("logs", "digits", "--type", "ps", "--no-prefix", "--grep", "^one$", "--tail", "1").out == "one\n"
    assert shell("logs", "digits", "--grep", "(").code == 2
    before = shell("logs", "digits", "--previous")
    assert before.out == ""
    assert "no replica was restarted: --previous has nothing to show" in before.err


def test_logs_of_a_running_job_are_followed_to_its_end(shell: Shell) -> None:
    counts = "import time\nfor step in range(20): print('step', step, flush=True); time.sleep(0.1)"
    shell("submit", shell.file("job.yaml", worker("digits", counts)))

    going = shell.start("logs", "digits", "--follow")
    going.until("step 3")
    ended = going.ended()

    assert ended.code == 0
    assert ended.out == "".join(f"[worker-0] step {step}\n" for step in range(20))


def test_the_run_before_a_restart_can_be_read(shell: Shell) -> None:
    once = (
        "import os, sys; first = not os.path.exists('ran'); open('ran', 'w')\n"
        "print('first' if first else 'second'); sys.exit(first)"
    )
    restarting = {**group(python(once)), "restartPolicy": "OnFailure"}

    ended = shell("run", shell.file("job.yaml", job("digits", Worker=restarting)))

    assert ended.code == 0
    # So short a life may be told after the next one, but it is told.
    assert sorted(line for line in ended.out.splitlines() if line.startswith("[")) == [
        "[worker-0] first",
        "[worker-0] second",
    ]
    assert shell("logs", "digits", "--previous").out == "[worker-0] first\n"


def test_the_logs_of_earlier_jobs_of_a_name_can_be_read(shell: Shell) -> None:
    for word, replicas in (("first", 2), ("second", 1), ("third", 1)):
        shell("run", shell.file("job.yaml", worker("digits", f"print('{word}')", replicas=replicas)))

    newest = shell("logs", "digits")

    assert newest.out == "[worker-0] third\n"
    assert newest.err == ""
    with Tty(shell.command("logs", "digits"), shell.folder, shell.environment()) as tty:
        assert tty.ended() == 0
        assert "2 earlier runs of digits are kept: `--run 1` shows the oldest" in tty.text
    assert shell("logs", "digits", "--run", "1", "--replica", "worker-0").out == "[worker-0] first\n"
    assert shell("logs", "digits", "--run", "-2").out == "[worker-0] second\n"
    assert shell("logs", "digits", "--run", "1", "--replica", "1").out == "[worker-1] first\n"
    shell("delete", "digits")
    assert shell("logs", "digits", "--run", "-1").out == "[worker-0] third\n"
    too_far = shell("logs", "digits", "--run", "4")
    assert (too_far.code, too_far.out) == (102, "")
    assert "3 runs of digits are kept" in too_far.err


def test_logs_of_a_job_that_waits_say_why_it_waits(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print('hello')")))
    wants = {"limits": {"memory": "900Ti"}}
    shell("submit", shell.file("job.yaml", worker("digits", "print(1)", resources=wants)))
    shell("wait", "digits", "--for", "waiting", "--timeout", "60s")

    ended = shell("logs", "digits")
    going = shell.start("logs", "digits", "--follow")
    going.until_err("; logs appear when its replicas start")
    going.signal(signal.SIGINT)
    following = going.ended().err

    first, second, third = ended.err.splitlines()
    assert (ended.code, ended.out) == (0, "")
    assert first.startswith(
        "tfjob/digits has no logs yet: it is Waiting: NeverFits: no node is large enough for one worker"
    )
    assert re.fullmatch(r"  more: .*tarragon why digits", second)
    assert third.startswith("1 earlier run of digits is kept: ")
    assert following.startswith("tfjob/digits is Waiting: NeverFits: ")


def test_why_and_describe_of_a_job_that_was_deleted_say_so_and_point_to_its_logs(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print('hello')")))
    shell("delete", "digits")

    asked = [shell("why", "digits"), shell("describe", "tfjob/digits")]
    never = shell("why", "digit")

    assert [ended.code for ended in [*asked, never]] == [102] * 3
    assert [ended.err.splitlines()[0] for ended in asked] == [
        "Error: digits is deleted",
        "Error: tfjob/digits is deleted",
    ]
    for ended in asked:
        assert ended.err.splitlines()[1] == "  `delete` deletes a job, and so does Ctrl-C on `run`"
        assert re.fullmatch(r"  its logs are kept: .*tarragon logs (?:tfjob/)?digits", ended.err.splitlines()[2])
    assert "not found" in never.err


@pytest.mark.parametrize("command", ["why", "describe", "logs"])
def test_where_only_logs_are_left_there_is_no_newest_job_and_none_of_an_impossible_name(
    shell: Shell, command: str
) -> None:
    shell("run", shell.file("job.yaml", worker("digits", "print('hello')")))
    shell("delete", "digits")

    for name in ("@latest", "tfjob/@latest", "x y", "UPPER-"):
        ended = shell(command, name)

        assert ended.code == 102
        assert re.match(r'Error: (?:no .*jobs found|job ".*" not found)', ended.err), ended.err


def test_names_are_completed_with_and_without_a_cluster(shell: Shell) -> None:
    assert completed(shell, "tarragon li") == ["list"]
    assert completed(shell, "tarragon logs ") == []

    shell("run", shell.file("job.yaml", worker("digits", "print(1)")))
    running = completed(shell, "tarragon logs d")
    shell("down")

    assert running == completed(shell, "tarragon logs ") == ["digits"]
    assert "--follow" in completed(shell, "tarragon logs --f")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell: Shell, name: str) -> None:
    ended = shell("completion", name)

    assert ended.code == 0
    assert "_TARRAGON_COMPLETE" in ended.out


def test_the_kubeconfig_is_one_of_our_own(shell: Shell) -> None:
    ended = shell("kubeconfig")

    assert ended.out == f"{shell.home}/kubeconfig\n"
    assert json.loads(Path(ended.out.strip()).read_text())["kind"] == "Config"


def test_check_tells_what_is_there_and_what_to_do(shell: Shell) -> None:
    shell.home.mkdir(mode=0o700)
    (shell.home / "images.yaml").write_text("tensorflow/*: /nowhere\n")

    ended = shell("check")

    topics = [line.split()[1] for line in ended.out.splitlines() if line.split()[0] in {"ok", "warning", "error"}]
    assert topics[:5] == ["Python", "TensorFlow", "MPI", "mpi4py", "JAX"]
    assert topics[5:9] == ["home", "disk", "cluster", "images"]
    assert topics[9:] == ["CPUs", "memory", "ports", "GPUs", "GPU", "kubectl"]
    assert re.search(r"^error +images .*maps to a folder that does not exist$", ended.out, re.MULTILINE)
    assert ended.code == 1


def test_up_serves_in_the_foreground_until_it_is_asked_to_end(shell: Shell) -> None:
    going = shell.start("up", "--kubeconfig", "here.json", "--node", "name=a,cpu=2,memory=4Gi")
    going.until("ready")
    second = shell("up")
    too_large = shell("run", shell.file("job.yaml", worker("digits", "print(1)", resources={"limits": {"cpu": 3}})))
    fits = shell("run", shell.file("job.yaml", worker("digits", "print('hello')", resources={"limits": {"cpu": 2}})))
    going.signal(signal.SIGTERM)
    ended = going.ended()

    assert re.match(r"ready  https://127\.0\.0\.1:\d+  kubeconfig here\.json\n", ended.out)
    assert (shell.folder / "here.json").exists()
    assert second.code == 1
    assert "Error: a local cluster is already running in" in second.err
    assert too_large.code == 105
    assert "3 cpu" in too_large.err
    assert "[worker-0] hello" in fits.out
    assert ended.code == 0
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("cpu=1,memory=1Gi", "has no name"),
        ("name=a", "has no cpu and no memory"),
        ("name=a,cpu=much,memory=1Gi", "'much' is not a quantity"),
        ("name=a,cpu=-1,memory=1Gi", "must be 0 or more"),
        ("a", "is not NAME=VALUE"),
        ("name=a,cpu=1,memory=1Gi,label:=b", "invalid label key"),
        ("name=a,cpu=1,memory=1Gi,label:zone=the north", "invalid label value"),
        ("name=a,cpu=1,memory=1Gi,gpu-memory=16Gi", "gpu-memory: the node has no GPUs"),
        ("name=a,cpu=1,memory=1Gi,nvidia.com/gpu=0,gpu-memory=16Gi", "gpu-memory: the node has no GPUs"),
        ("name=a,cpu=1,memory=1Gi,nvidia.com/gpu=1,gpu-memory=0", "gpu-memory: must be 1Mi or more"),
        ("name=a,cpu=1,memory=1Gi,nvidia.com/gpu=1,gpu-memory=16", "gpu-memory: must be 1Mi or more"),
        ("name=a,cpu=1,memory=1Gi,nvidia.com/gpu=1,gpu-memory=-1Gi", "gpu-memory: must be 0 or more"),
        ("name=a,cpu=1,memory=1Gi,nvidia.com/gpu=1,gpu-memory=big", "gpu-memory: 'big' is not a quantity"),
    ],
)
def test_a_node_that_is_described_badly(shell: Shell, node: str, words: str) -> None:
    ended = shell("up", "--node", node)

    assert ended.code == 2
    assert words in ended.err


def test_a_corrupt_store_is_said_and_left_alone(shell: Shell) -> None:
    shell.home.mkdir(mode=0o700)
    (shell.home / "state.db").write_bytes(b"this is no database, by no means" * 200)

    looked = shell("list")
    started = shell("run", shell.file("job.yaml", worker("digits", "print(1)")))

    for ended in (looked, started):
        assert ended.code == 1
        assert "state.db" in ended.err
        assert "Traceback" not in ended.err
    assert (shell.home / "state.db").read_bytes().startswith(b"this is no database")


def test_a_store_of_a_newer_version_is_said_and_left_alone(shell: Shell) -> None:
    shell("kubeconfig")
    shell("down")
    with sqlite3.connect(shell.home / "state.db") as store:
        store.execute("PRAGMA user_version = 999")
    store.close()

    ended = shell("kubeconfig")

    assert ended.code == 1
    assert "was written by a newer Tarragon" in ended.err
    assert "upgrade Tarragon" in ended.err
    assert "Traceback" not in ended.err


def test_down_ends_what_a_killed_cluster_has_left(shell: Shell) -> None:
    going = shell.start("run", shell.file("job.yaml", worker("digits", WAITS, replicas=2)))
    for _ in range(2):
        going.until("here")
    server = read_server(Home(shell.home))
    assert server is not None
    going.signal(signal.SIGKILL)
    going.ended()
    killed = psutil.Process(server.pid)
    killed.kill()
    killed.wait(timeout=60)  # It ends a moment later, and would be stopped until then.

    ended = shell("down")

    assert f"Stopped the local cluster in {shell.home}: 2 containers." in ended.err
    left = subprocess.run(["pgrep", "-f", str(shell.home)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_cluster_in_the_foreground_says_that_down_has_stopped_it(shell: Shell) -> None:
    up = shell.start("up")
    up.until("ready")

    shell("down")

    ended = up.ended()
    assert ended.code == 0
    assert "`tarragon down` asked for it" in ended.err
    assert "SIGUSR1" not in ended.err


def test_the_version_says_on_what_it_runs(shell: Shell) -> None:
    document = json.loads(shell("version", "-o", "json").out)

    assert document["executable"] == sys.executable
    assert shell("version").out.startswith(f"tarragon {document['version']}, Python ")


def test_a_container_that_fails_before_the_main_one_is_heard(shell: Shell) -> None:
    before = {"name": "fetch", "image": "python:3", "command": ["sh", "-c", "echo no data here; exit 3"]}
    replica = group(command("echo", "trained"))
    template = {"spec": {**replica["template"]["spec"], "initContainers": [before]}}

    ended = shell("run", shell.file("job.yaml", job("digits", Worker={"replicas": 1, "template": template})))

    assert ended.code == 100
    assert "[worker-0] no data here" in ended.out
    assert "exit code 3" in ended.out
