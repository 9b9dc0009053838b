"""The command line's rules where jobs are submitted: numbers are those of the rules in docs/cli.md."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tarragon.cli.commands import submit
from tarragon.cli.manifest import dry_run
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.sizing import is_large, size_table, training_jobs
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.foreign import KubeconfigTarget
from tarragon.client.http.config import load_kubeconfig as access
from tarragon.frameworks.registry import FRAMEWORKS
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, python, worker
from tests.cli.test_clusters import kubeconfig

pytestmark = pytest.mark.timeout(300)

SLEEPS = "import time; time.sleep(600)"


def loaded(**groups: Any) -> LoadedJob:
    manifest = json.loads(job("digits", **groups))
    manifest["metadata"]["namespace"] = "default"
    return LoadedJob(framework=FRAMEWORKS[0], job=manifest, companions=(), notes=())


def asking(gpus: int, replicas: int) -> Any:
    resources = {"limits": {"nvidia.com/gpu": gpus, "cpu": "2", "memory": "4Gi"}}
    return group(python("", resources=resources), replicas)


def test_rule_10_a_dry_run_by_the_client_prints_pods_services_and_tf_config_and_starts_nothing(shell: Shell) -> None:
    file = shell.file("job.yaml", job("digits", PS=group(python("1")), Worker=group(python("1"), replicas=2)))

    for name in ("run", "submit"):
        ended = shell(name, file, "--dry-run=client")

        found = list(yaml.safe_load_all(ended.out))
        pods = [body for body in found if body["kind"] == "Pod"]
        assert [body["kind"] for body in found] == ["TFJob", "Service", "Service", "Service", "Pod", "Pod", "Pod"]
        environment = pods[2]["spec"]["containers"][0]["env"]
        config = json.loads(next(each["value"] for each in environment if each["name"] == "TF_CONFIG"))
        assert config["task"] == {"type": "worker", "index": 1}
        assert len(config["cluster"]["worker"]) == 2
        assert "Nothing was created" in ended.err
    assert not shell.home.exists()
    assert shell("submit", file, "--dry-run=client", "-o", "name").out.splitlines()[:2] == [
        "tfjob.kubeflow.org/digits",
        "service/digits-ps-0",
    ]
    assert json.loads(shell("submit", file, "--dry-run=client", "-o", "json").out)["kind"] == "List"
    assert "-o requires --dry-run" in shell("submit", file, "-o", "json").err


@pytest.mark.parametrize("words", [["--dry-run", "FILE"], ["FILE", "--dry-run"], ["--dry-run", "-f", "FILE"]])
def test_a_dry_run_without_a_value_is_one_by_the_client(shell: Shell, words: list[str]) -> None:
    file = shell.file("job.yaml", worker("digits", "print(1)"))
    words = [file if word == "FILE" else word for word in words]

    for name in ("run", "submit"):
        ended = shell(name, *words)
        assert (ended.code, ended.out) == (0, shell(name, file, "--dry-run=client").out), ended.err
        assert "Nothing was created" in ended.err
    assert not shell.home.exists()


def test_a_misspelled_value_of_dry_run_creates_nothing(shell: Shell) -> None:
    file = shell.file("job.yaml", worker("digits", "print(1)"))

    for words in (["--dry-run=sever", file], ["--dry-run", "sever", file], ["--dry-run", "sever", "-f", file]):
        assert shell("submit", *words).code == 2
    assert not shell.home.exists()


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_dry_run_shows_the_tensorboard_that_is_asked_for(shell: Shell, how: str) -> None:
    body = json.loads(worker("digits", "print(1)"))
    body["metadata"]["annotations"] = {"tarragon.dev/tensorboard": "/logs"}

    named = shell("submit", shell.file("job.yaml", json.dumps(body)), f"--dry-run={how}", "-o", "name").out

    assert named.splitlines()[-2:] == ["service/digits-tensorboard", "pod/digits-tensorboard"]


def test_a_dry_run_shows_no_secrets(shell: Shell) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
    file = shell.file("job.yaml", f"{json.dumps(secret)}\n---\n{worker('digits', 'print(1)')}")

    for how in ("client", "server"):
        ended = shell("submit", file, f"--dry-run={how}")
        assert ended.code == 0
        assert "hunter2" not in ended.out
        assert "aHVudGVyMg" not in ended.out


def test_rule_10_a_dry_run_by_the_server_shows_what_admission_made_of_it_and_makes_nothing(shell: Shell) -> None:
    file = shell.file("job.yaml", worker("digits", "print(1)"))

    ended = shell("submit", file, "--dry-run=server")

    job_, service, pod = yaml.safe_load_all(ended.out)
    assert re.fullmatch(r"[0-9a-f-]{36}", job_["metadata"]["uid"])
    assert service["kind"] == "Service"
    assert pod["spec"]["serviceAccountName"] == "default"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == job_["metadata"]["uid"]
    assert shell("list").out == ""


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_dry_run_shows_nothing_of_this_machine(shell: Shell, how: str) -> None:
    (shell.folder / "data").mkdir()
    file = shell.file("job.yaml", worker("digits", "print(1)"))

    ended = shell("run", file, f"--dry-run={how}", "--volume", "data=data")

    assert str(shell.folder) not in ended.out
    *_, pod = yaml.safe_load_all(ended.out)
    assert next(iter(pod)) == "apiVersion"


def test_a_dry_run_by_the_server_says_what_would_become_of_a_finished_job(shell: Shell) -> None:
    file = shell.file("job.yaml", worker("digits", "print(1)"))
    assert shell("run", file).code == 0

    ended = shell("run", file, "--dry-run=server", "-o", "name")

    assert ended.code == 0
    # What else is said is not of the job.
    (said,) = (line for line in ended.err.splitlines() if "digits" in line)
    assert re.fullmatch(r"tfjob/digits from \d+ ?s ago \(Succeeded\) would be replaced; its logs are kept", said)
    assert "Succeeded" in shell("list").out


def test_a_dry_run_says_that_a_finished_job_of_a_cluster_is_only_replaced_if_one_asks_for_it(shell: Shell) -> None:
    file = shell.file("job.yaml", worker("digits", "print(1)"))
    assert shell("run", file).code == 0
    outside = replace(shell, variables={"KUBECONFIG": str(shell.home / "kubeconfig")})

    kept = outside("--context", "tarragon", "run", file, "--dry-run=server")
    replaced = outside("--context", "tarragon", "run", file, "--dry-run=server", "--replace")

    assert "tfjob/digits already exists: Succeeded; use --replace to delete it and submit this one" in kept.err
    assert "(Succeeded) would be replaced in default on context tarragon" in replaced.err


def test_a_dry_run_by_the_server_says_under_which_name_a_script_would_run(shell: Shell) -> None:
    shell.file("wait.py", "import time; time.sleep(600)")
    assert shell("submit", "wait.py").code == 0

    ended = shell("run", "wait.py", "--dry-run=server", "-o", "name")

    assert re.search(r"^tfjob/wait is still \w+, so this job is wait-2$", ended.err, re.MULTILINE)
    assert "pod/wait-2-worker-0" in ended.out


def test_a_dry_run_says_in_one_sentence_why_a_script_gets_another_name_on_a_cluster(shell: Shell) -> None:
    shell.file("train.py", "")
    assert shell("run", "train.py").code == 0
    outside = replace(shell, variables={"KUBECONFIG": str(shell.home / "kubeconfig")})

    ended = outside("--context", "tarragon", "run", "train.py", "--dry-run=server", "-o", "name")

    (said,) = (line for line in ended.err.splitlines() if "train-2" in line)
    assert re.match(r"tfjob/train is kept on .* \(Succeeded\), so this job is train-2; with --replace it would", said)
    assert "give this one another name" not in ended.err


def test_a_job_of_every_generation_can_be_tried(shell: Shell) -> None:
    body = {"containers": [python("1")], "restartPolicy": "OnFailure"}
    spec = {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": {"spec": body}}]}
    manifest = {"metadata": {"generateName": "old-"}, "spec": spec}
    for version, kind in (("kubeflow.org/v1alpha1", "TFJob"), ("mlkube.io/v1beta1", "TfJob")):
        found = dry_run.client_dry_run(
            LoadedJob(
                framework=next(each for each in FRAMEWORKS if each.kind == kind),
                job={"apiVersion": version, "kind": kind, **manifest},
                companions=(),
                notes=(),
            )
        )
        assert [body["kind"] for body in found.objects] == [kind, "Service", "Pod"]


def test_rule_12_a_large_job_is_shown_with_what_it_asks_for_and_its_gpu_hours() -> None:
    small, large = loaded(Worker=asking(4, 2)), loaded(Worker=asking(8, 4), PS=asking(0, 2))

    assert not is_large(training_jobs([small]), 8)
    assert is_large(training_jobs([large]), 8)
    lines = [re.split(r" {2,}", line) for line in size_table(training_jobs([large]))]
    assert lines[:4] == [
        ["JOB", "TYPE", "REPLICAS", "CPUS", "MEMORY", "GPUS"],
        ["digits", "ps", "2", "2", "4.0 GiB", "0"],
        ["digits", "worker", "4", "2", "4.0 GiB", "8"],
        ["all", "6", "12", "24.0 GiB", "32"],
    ]
    assert lines[4][0].startswith("32 GPUs: 32 GPU-hours per hour, without a limit")
    limited = {**large.job, "spec": {**large.job["spec"], "runPolicy": {"activeDeadlineSeconds": 5400}}}
    last = list(size_table(training_jobs([LoadedJob(framework=FRAMEWORKS[0], job=limited, companions=(), notes=())])))[
        -1
    ]
    assert last == "32 GPUs: at most 48 GPU-hours (activeDeadlineSeconds)"


@pytest.mark.parametrize(("said", "refused"), [("y\n", None), ("n\n", click.Abort)])
def test_rule_12_somebody_at_a_terminal_is_asked_and_can_say_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, refused: type[Exception] | None
) -> None:
    where = KubeconfigTarget(
        access({}, path=Path(kubeconfig(tmp_path / "k", "http://x", "prod", current="prod"))), GlobalOptions()
    )
    ours, theirs = pty.openpty()
    os.write(ours, said.encode())
    with open(theirs) as stdin, open(os.dup(theirs), "w") as stderr:  # noqa: PTH123 - a terminal has no path here
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stderr", stderr)
        with nullcontext() if refused is None else pytest.raises(refused):
            submit.confirm_large_jobs(where, [loaded(Worker=asking(8, 4))], 8, is_agreed=False)
        submit.confirm_large_jobs(where, [loaded(Worker=asking(8, 4))], 8, is_agreed=True)
        submit.confirm_large_jobs(where, [loaded(Worker=asking(1, 4))], 8, is_agreed=False)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(ours, 4096)
    os.close(ours)

    assert b"Submit this to context prod (http://x)? [y/N]" in seen
    assert b"32 GPUs: 32 GPU-hours per hour" in seen


def test_rule_19_submitting_twice_is_submitting_once_and_another_one_is_refused(shell: Shell) -> None:
    file = shell.file("job.yaml", worker("digits", SLEEPS))
    assert shell("submit", file).code == 0

    again = shell("submit", file)
    changed = shell("submit", file, "--set", "spec.tfReplicaSpecs.Worker.replicas=2")

    assert (again.code, again.out) == (0, "tfjob/digits\n")
    assert "tfjob/digits unchanged: it already exists" in again.err
    assert changed.code == 1
    assert "and FILE differs from it" in changed.err
    assert "`diff FILE` shows the differences" in changed.err


def test_rule_19_a_key_makes_retries_safe_also_where_the_name_is_made_up_and_names_are_echoed(shell: Shell) -> None:
    manifest = json.loads(worker("digits", SLEEPS))
    manifest["metadata"] = {"generateName": "digits-"}
    file = shell.file("job.yaml", json.dumps(manifest))

    first, second = (shell("submit", file, "--idempotency-key", "build-7") for _ in range(2))
    other = shell("submit", file, "--idempotency-key", "build-8")
    without = shell("submit", file)

    assert first.out == second.out
    assert re.fullmatch(r"tfjob/digits-[0-9a-f]{10}\n", first.out)
    assert "unchanged" in second.err
    assert len({first.out, other.out, without.out}) == 3
    assert len(shell("list", "-o", "name").out.splitlines()) == 3
    ended = shell("delete", "--all")
    assert ended.code == 0


@pytest.mark.kubectl
def test_who_submits_and_then_applies_with_kubectl_is_warned_of_nothing(shell: Shell) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}
    file = shell.file("job.yaml", yaml.dump_all([settings, json.loads(worker("digits", SLEEPS))]))
    shell("submit", file)
    apply = ["kubectl", "--kubeconfig", str(shell.home / "kubeconfig"), "apply", "-f", file]

    first = subprocess.run(apply, cwd=shell.folder, capture_output=True, text=True, check=False, timeout=60)
    shell.file("job.yaml", yaml.dump({**settings, "data": {"b": "2"}}))
    second = subprocess.run(apply, cwd=shell.folder, capture_output=True, text=True, check=False, timeout=60)

    assert (first.stdout, first.stderr) == ("configmap/settings unchanged\ntfjob.kubeflow.org/digits unchanged\n", "")
    assert (second.stdout, second.stderr) == ("configmap/settings configured\n", "")
    get = ["kubectl", "--kubeconfig", str(shell.home / "kubeconfig"), "get", "configmap", "settings", "-o", "json"]
    found = subprocess.run(get, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(found.stdout)["data"] == {"b": "2"}


def test_several_jobs_of_a_file_are_submitted_together_and_one_is_run(shell: Shell) -> None:
    file = shell.file("jobs.yaml", f"{worker('one', 'print(1)')}\n---\n{worker('two', 'print(2)')}")

    ended = shell("submit", "-", stdin=(shell.folder / file).read_text())

    assert (ended.code, ended.out) == (0, "tfjob/one\ntfjob/two\n")
    assert shell("run", file).code == 2
    assert "need a FILE with one job" in shell("submit", file, "--wait").err
    assert "requires a FILE with one job" in shell("submit", file, "--idempotency-key", "k").err


@pytest.mark.parametrize(("program", "code"), [("print('hello')", 0), ("raise SystemExit(3)", 100)])
def test_rule_1_submit_may_stay_until_the_job_has_ended(shell: Shell, program: str, code: int) -> None:
    waited = shell("submit", shell.file("a.yaml", worker("a", program)), "--wait", "--timeout", "60")
    watched = shell("submit", shell.file("b.yaml", worker("b", program)), "--watch")
    read_ = shell("submit", shell.file("c.yaml", worker("c", program)), "--logs")

    assert [ended.code for ended in (waited, watched, read_)] == [code] * 3
    assert waited.out.startswith("tfjob/a\n")
    assert re.search(r"^\d\d:\d\d:\d\dZ  worker-0: ", watched.err, re.MULTILINE)
    assert ("[worker-0] hello" in read_.out) is (code == 0)


def test_rule_3_wait_ends_with_any_end_and_may_be_for_several_states(shell: Shell) -> None:
    shell("submit", shell.file("a.yaml", worker("a", SLEEPS)))

    running = shell("wait", "a", "--for", "Running", "--for", "failed", "--timeout", "60")
    late = shell("wait", "a", "--for", "failed", "--timeout", "0.1", "-o", "json")
    going = shell.start("wait", "a")
    going.until_err("without a time limit")
    shell("delete", "a")
    gone = going.ended()

    assert (running.code, running.out[:7]) == (0, "Running")
    assert (late.code, json.loads(late.out)["exitCode"]) == (101, 101)
    assert "has not reached that state within" in late.err
    assert (gone.code, gone.out) == (103, "Deleted  a\n")
    assert "without a time limit; --timeout sets one" in gone.err


def test_several_jobs_are_waited_for_and_the_first_that_has_not_succeeded_says_the_exit_code(shell: Shell) -> None:
    for name, code in (("a", 0), ("b", 3), ("c", 0)):
        shell("submit", shell.file("job.yaml", worker(name, f"raise SystemExit({code})")))

    every = shell("wait", "a", "b", "c")
    as_json = shell("wait", "a", "c", "a", "-o", "json")
    missing = shell("wait", "a", "nope")

    assert every.code == 100
    assert sorted(line.split(" after ")[0] for line in every.out.splitlines()) == [
        "Failed  b",
        "Succeeded  a",
        "Succeeded  c",
    ]
    assert (as_json.code, [each["name"] for each in json.loads(as_json.out)["items"]]) == (0, ["a", "c"])
    assert "without a time limit" not in as_json.err
    assert (missing.code, missing.out) == (102, "")
    assert shell("wait", "--all", "--for", "deleted").code == 101


def test_rule_4_ctrl_c_while_waiting_for_several_detaches_from_all(shell: Shell) -> None:
    for name in ("a", "b"):
        shell("submit", shell.file("job.yaml", worker(name, SLEEPS)))
    going = shell.start("wait", "a", "b")
    going.until_err("Waiting for 2 jobs without a time limit")

    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 101
    assert {"Detached from tfjob/a: it", "Detached from tfjob/b: it"} <= {line[:25] for line in ended.err.splitlines()}


def test_rule_4_ctrl_c_while_waiting_leaves_the_job_alone_and_tells_the_next_commands(shell: Shell) -> None:
    shell("submit", shell.file("a.yaml", worker("a", SLEEPS)))
    shell("wait", "a", "--for", "running", "--timeout", "60")
    going = shell.start("submit", "a.yaml", "--watch")
    going.until("tfjob/a")
    going.until_err("worker-0: Running")

    going.signal(signal.SIGINT)
    ended = going.ended()

    assert ended.code == 101
    assert "Detached from tfjob/a: it continues" in ended.err
    assert re.search(r"end it +\S.* delete a$", ended.err, re.MULTILINE)
    assert "Running" in shell("get", "a").out


def test_rule_22_values_are_set_as_what_they_look_like_as_texts_and_as_json(shell: Shell) -> None:
    file = shell.file("job.yaml", worker("digits", "print(1)"))
    container = "spec.tfReplicaSpecs.Worker.template.spec.containers[tensorflow]"

    ended = shell(
        *("submit", file, "--dry-run=client", "-o", "json", "--set", "spec.tfReplicaSpecs.Worker.replicas=2"),
        *("--set-string", "metadata.labels.build=7", "--set-json", f'{container}.args=["a", "b"]'),
        *("--set", f"{container}.args[1]=c"),
    )

    made = json.loads(ended.out)["items"][0]
    assert made["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 2
    assert made["metadata"]["labels"] == {"build": "7"}
    assert made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] == ["a", "c"]
    wrong = shell("submit", file, "--set", "spec.tfReplicaSpecs.Worekr.replicas=2")
    assert wrong.code == 2
    assert "did you mean Worker?" in wrong.err
    assert "--set-json spec.x={ failed" in shell("submit", file, "--set-json", "spec.x={").err
    assert " failed" in shell("submit", file, "--set", f"spec.x={'[' * 2_000}{']' * 2_000}").err
