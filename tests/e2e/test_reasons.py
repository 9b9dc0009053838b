"""Why a replica does not get to run, read where people look: in `list`, in `describe`, in `kubectl get`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.cli.manifests import by_all_workers, command, group, job, python
from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.kubectl, pytest.mark.timeout(180)]


def listed_row(user: User, name: str, word: str) -> str:
    """The row of `list`, once that word stands in it."""

    def row() -> str | None:
        rows = [line for line in user("list").out.splitlines() if line.split()[:1] == [name]]
        return rows[0] if rows and word in rows[0] else None

    return eventually(row)


def submit(user: User, name: str, text: str) -> None:
    done = user("submit", user.file(f"{name}.json", text))
    assert done.code == 0, done.err


def test_what_is_missing_stands_on_the_job_and_once_it_is_there_the_job_runs(user: User) -> None:
    wanting = command("sh", "-c", "echo rate $RATE", envFrom=[{"configMapRef": {"name": "settings"}}])
    submit(user, "digits", by_all_workers(job("digits", Worker=group(wanting, 2))))

    assert 'all 2 workers: configmap "settings" not found' in listed_row(user, "digits", "CreateContainerConfigError")
    assert 'CreateContainerConfigError: all 2 workers: configmap "settings"' in user("describe", "digits").out
    settings: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    environment = {**os.environ, "KUBECONFIG": user("kubeconfig").out.strip()}
    body = json.dumps({**settings, "data": {"RATE": "0.1"}})
    subprocess.run(["kubectl", "create", "-f", "-"], input=body, env=environment, text=True, check=True)
    assert user("wait", "digits").code == 0
    assert "[worker-1] rate 0.1" in user("logs", "digits").out
    assert listed_row(user, "digits", "Succeeded").split()[8:] == []


def test_a_claim_that_is_not_there_is_named(user: User) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "gone"}}]
    mounted = python("pass", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    submit(user, "digits", job("digits", Worker=group(mounted, 1, volumes)))

    assert (
        'worker-0: MountVolume.SetUp failed for volume "data" : persistentvolumeclaim "gone" not found'
        in listed_row(user, "digits", "PodNotPrepared")
    )


def test_a_loop_of_failures_is_told_with_its_exit_code_and_its_last_line(user: User) -> None:
    failing = {**group(python("import sys; sys.exit('no data in /data')")), "restartPolicy": "OnFailure"}
    submit(user, "digits", job("digits", Worker=failing))

    assert "worker-0: exit code 1" in listed_row(user, "digits", "CrashLoopBackOff")
    assert "no data in /data" in listed_row(user, "digits", "CrashLoopBackOff")


def test_the_last_words_of_a_failed_init_container_outlive_its_pod(user: User) -> None:
    fetching = {"name": "fetch", "image": "python:3", "command": ["sh", "-c", "echo no route to host; exit 6"]}
    replicas = group(python("pass"))
    replicas["template"]["spec"]["initContainers"] = [fetching]
    body = json.loads(job("digits", Worker={**replicas, "restartPolicy": "Never"}))
    body["spec"]["runPolicy"] = {"cleanPodPolicy": "All"}
    assert user.run(user.file("job.json", json.dumps(body))).code == 100

    environment = {**os.environ, "KUBECONFIG": user("kubeconfig").out.strip()}
    wide = subprocess.run(
        ["kubectl", "get", "tfjobs", "-o", "wide"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert wide.splitlines()[0].split() == [
        "NAME",
        "STATE",
        "READY",
        "RESTARTS",
        "AGE",
        "PROGRESS",
        "REASON",
        "MESSAGE",
    ]
    assert " ".join(wide.split()).endswith("Error worker-0: exit code 6: init container fetch: no route to host")
