"""What is wrong with a FILE is told at once, with the line and the remedy, and nothing is created or started."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarragon.cli.manifest.files import MAX_BYTES
from tests.cli.conftest import Shell

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: digits
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers:
            - name: tensorflow
              image: tensorflow/tensorflow:2.21.0
              command: [python, -c, "print('hello')"]
"""


def test_a_manifest_without_faults_is_fine(shell: Shell) -> None:
    ended = shell("validate", shell.file("job.yaml", JOB))

    assert (ended.code, ended.out, ended.err) == (0, "job.yaml: TFJob digits (kubeflow.org/v1) is valid\n", "")


def test_a_manifest_comes_from_standard_input_too(shell: Shell) -> None:
    ended = shell("validate", "-f", "-", stdin=JOB)

    assert (ended.code, ended.out) == (0, "standard input: TFJob digits (kubeflow.org/v1) is valid\n")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("replicas: 1", "replicas: -1", "line 8: spec.tfReplicaSpecs.Worker.replicas: must be 0 or more, not -1"),
        ("replicas: 1", "replicas: many", "line 8: spec.tfReplicaSpecs.Worker.replicas: must be a whole number"),
        (
            "replicas: 1",
            "replica: 1",
            "line 8: spec.tfReplicaSpecs.Worker.replica: unknown field; did you mean replicas?",
        ),
        (
            "name: tensorflow",
            "name: tf",
            "line 11: spec.tfReplicaSpecs.Worker.template.spec.containers: no container is named tensorflow",
        ),
        ("name: digits", f"name: {'d' * 80}", "line 4: metadata.name: "),
        ("kind: TFJob", "kind: TFJb", "line 2: kind: "),
        ("apiVersion: kubeflow.org/v1", "apiVersion: kubeflow.org/v9", "line 1: apiVersion: "),
        ("spec:\n  tfReplicaSpecs", "spec\n  tfReplicaSpecs", "line "),
    ],
)
def test_a_fault_is_told_with_its_line(shell: Shell, before: str, after: str, line: str) -> None:
    ended = shell("validate", shell.file("job.yaml", JOB.replace(before, after, 1)))

    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("Error: job.yaml: ")
    assert any(text.strip().startswith(line) for text in ended.err.splitlines()), ended.err


def test_all_faults_are_told_at_once(shell: Shell) -> None:
    faulty = JOB.replace("replicas: 1", "replicas: -1").replace("name: tensorflow", "name: tf")

    ended = shell("validate", shell.file("job.yaml", faulty))

    assert ended.err.splitlines()[0] == "Error: job.yaml: 2 problems"
    assert len(ended.err.splitlines()) == 3


def test_two_chiefs_are_one_too_many(shell: Shell) -> None:
    worker = JOB.partition("    Worker:\n")[2]
    both = JOB.replace("    Worker:\n", f"    Master:\n{worker}    Chief:\n", 1)

    ended = shell("validate", shell.file("job.yaml", both))

    assert ended.code == 2
    assert "Chief" in ended.err
    assert "Master" in ended.err


def test_two_jobs_are_fine_for_validate_and_one_too_many_for_run(shell: Shell) -> None:
    name = shell.file("jobs.yaml", f"{JOB}---\n{JOB.replace('digits', 'letters')}")

    fine = shell("validate", name).out
    assert fine == "jobs.yaml: TFJob digits (kubeflow.org/v1) and TFJob letters (kubeflow.org/v1) are valid\n"
    refused = shell("run", name)
    assert refused.code == 2
    assert "there are 2 jobs in the manifest: TFJob digits in line 1, TFJob letters in line 16" in refused.err


def test_a_file_without_a_job_says_what_is_missing(shell: Shell) -> None:
    ended = shell("run", shell.file("cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\n"))

    assert ended.code == 2
    assert "there is no job in the manifest; add a job" in ended.err


def test_a_file_that_is_not_there(shell: Shell) -> None:
    ended = shell("run", "nothing.yaml")

    assert ended.code == 2
    assert ended.err.splitlines() == [
        "Error: file nothing.yaml not found",
        f"  the current folder is {shell.folder}",
    ]


def test_a_folder_is_no_file(shell: Shell) -> None:
    assert "Error: . is a folder" in shell("run", ".").err


def test_what_is_no_text_is_no_manifest(shell: Shell) -> None:
    (shell.folder / "model.h5").write_bytes(b"\x89HDF\r\n\xff\xfe")

    ended = shell("run", "model.h5")

    assert ended.code == 2
    assert ended.err.splitlines()[:2] == ["Error: model.h5 is not a text file", "  byte 0 is not UTF-8"]


def test_a_file_that_is_too_large_is_not_read_whole(shell: Shell) -> None:
    with (shell.folder / "huge.yaml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)

    assert "Error: huge.yaml is too large" in shell("validate", "huge.yaml").err


def test_a_byte_order_mark_is_not_part_of_a_manifest(shell: Shell) -> None:
    (shell.folder / "job.yaml").write_bytes(b"\xef\xbb\xbf" + JOB.encode())

    assert shell("validate", "job.yaml").code == 0


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_may_be_a_url(shell: Shell, web: str) -> None:
    ended = shell("validate", f"{web}/job.yaml")

    assert ended.out == f"{web}/job.yaml: TFJob digits (kubeflow.org/v1) is valid\n"


def test_a_url_that_leads_nowhere_says_what_the_server_said(shell: Shell, web: str) -> None:
    ended = shell("validate", f"{web}/other.yaml")

    assert ended.code == 2
    assert ended.err.splitlines() == [f"Error: can't read {web}/other.yaml", "  the server answered 404 File not found"]


def test_a_url_of_nobody_says_so(shell: Shell) -> None:
    ended = shell("validate", "http://127.0.0.1:9/job.yaml")

    assert ended.code == 2
    assert "Connection refused" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "spec.tfReplicaSpecs.Worker.replicas=-1"), "spec.tfReplicaSpecs.Worker.replicas: must be 0 or more"),
        (("--set", "spec.tfReplicaSpecs.Worker.replics=1"), "did you mean replicas?"),
        (("--set", "spec.tfReplicaSpecs.Worker[0]=1"), "not a list at [0]"),
        (("--set", "replicas"), "'replicas' is not an assignment; use NAME=VALUE"),
        (("--image-env", "tensorflow/tensorflow=/nowhere"), "/nowhere is not an existing folder"),
        (("-n", "Research_"), "namespace"),
    ],
)
def test_what_the_command_line_changes_is_checked_with_the_file(
    shell: Shell, words: tuple[str, ...], message: str
) -> None:
    ended = shell("run", shell.file("job.yaml", JOB), *words)

    assert ended.code == 2
    assert message in ended.err
    assert not (shell.home / "state.db").exists()


def test_two_namespaces_are_one_too_many(shell: Shell) -> None:
    named = JOB.replace("name: digits", "name: digits\n  namespace: research")

    ended = shell("run", shell.file("job.yaml", named), "-n", "production")

    assert ended.code == 2
    assert "several namespaces are given: production, research" in ended.err


def test_a_container_of_which_nobody_knows_what_it_starts_is_a_problem_before_anything_is_created(shell: Shell) -> None:
    without = JOB.replace("              command: [python, -c, \"print('hello')\"]\n", "")

    ended = shell("run", shell.file("job.yaml", without))

    assert ended.code == 2
    assert "containers[0].command: is missing" in ended.err
    assert "images.yaml" in ended.err
    assert not (shell.home / "state.db").exists()


def test_an_image_whose_entrypoint_is_known_needs_no_command(shell: Shell) -> None:
    without = JOB.replace("              command: [python, -c, \"print('hello')\"]\n", "")
    shell.home.mkdir()
    (shell.home / "images.yaml").write_text("tensorflow/*: {entrypont: [python]}\n")

    ended = shell("run", shell.file("job.yaml", without))

    assert ended.code == 1
    assert "did you mean entrypoint?" in ended.err


def test_problems_are_told_in_the_order_of_their_lines(shell: Shell) -> None:
    text = (
        "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: digits}\nspec:\n  nobodyKnows: 1\n"
        "  tfReplicaSpecs:\n    Worker:\n      replicas: -1\n      restartPolicy: Sometimes\n      alsoUnknown: 2\n"
        "      template: {spec: {containers: [{name: tensorflow, image: a, command: [a]}]}}\n"
    )
    name = shell.file("job.yaml", text)

    for command in ("validate", "run"):
        found = [int(line) for line in re.findall(r"line (\d+)", shell(command, name).err)]
        assert found == sorted(found)
        assert len(found) > 2
