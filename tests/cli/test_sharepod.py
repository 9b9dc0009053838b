"""The commands on a SharePod: one pod, which is its own template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(300)

SLEEPS = "import time; time.sleep(600)"


def sharepod(program: str, **metadata: Any) -> str:
    container = {"name": "main", "image": "python:3.12", "command": ["python", "-c", program]}
    body = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": "shp", **metadata},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return json.dumps(body)


def test_it_runs_to_its_end_in_the_folder_that_it_was_submitted_from(shell: Shell) -> None:
    shell.file("data.txt", "some data")
    ended = shell("run", shell.file("shp.yaml", sharepod("print(open('data.txt').read())")))

    assert ended.code == 0, ended.out + ended.err
    assert "[pod-0] some data" in ended.out.splitlines()
    assert shell("list").out.splitlines()[1].split()[:2] == ["shp", "Succeeded"]
    assert "[pod-0] some data" in shell("logs", "shp/shp").out
    assert (shell("diff", "shp.yaml").code, shell("delete", "sharepod/shp").code) == (0, 0)


def test_what_ran_it_is_found_again_although_its_template_is_the_object(shell: Shell) -> None:
    ended = shell("run", shell.file("shp.yaml", sharepod("import nosuchmodule")))

    assert ended.code == 100
    assert "nosuchmodule is not installed in " in ended.out + ended.err


def test_its_problems_are_told_with_their_lines_and_paths(shell: Shell) -> None:
    text = sharepod(SLEEPS, annotations={"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "0.2"})
    checked = shell("validate", shell.file("shp.yaml", text))

    assert checked.code == 2
    assert 'metadata.annotations["kubeshare/gpu_limit"]: must be 0.5 or more' in checked.err


def test_it_can_neither_be_scaled_nor_suspended(shell: Shell) -> None:
    shell("submit", shell.file("shp.yaml", sharepod(SLEEPS)))
    shell("wait", "sharepod/shp", "--for", "Running")

    scaled = shell("scale", "sharepod/shp", "--replicas", "pod=2")
    suspended = shell("suspend", "sharepod/shp")

    assert (scaled.code, suspended.code) == (1, 1)
    assert "can't scale sharepod/shp: SharePods have a fixed size" in scaled.err
    assert "can't suspend sharepod/shp: SharePods can't be suspended" in suspended.err


def test_without_its_gpus_a_share_is_removed(shell: Shell) -> None:
    text = sharepod("print(1)", annotations={"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"})
    ended = shell("run", shell.file("shp.yaml", text), "--cpu-only")

    assert ended.code == 0, ended.out + ended.err
    assert "--cpu-only: removed 2 GPU requests" in ended.err


def test_the_objects_that_would_be_created_are_the_sharepod_and_its_pod(shell: Shell) -> None:
    shown = shell("submit", shell.file("shp.yaml", sharepod(SLEEPS)), "--dry-run=client", "-o", "json")

    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    objects = found.get("items", [found])
    assert [(each["kind"], each["metadata"]["name"]) for each in objects] == [("SharePod", "shp"), ("Pod", "shp")]
