"""The commands on a JAXJob: a kind with a single generation, whose replicas restart together."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(300)


def jaxjob(program: str, workers: int = 2) -> str:
    container = {"name": "jax", "image": "python:3.12", "command": ["python", "-c", program]}
    replicas = {"replicas": workers, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "digits"},
        "spec": {"jaxReplicaSpecs": {"Worker": replicas}},
    }
    return json.dumps(job)


def test_a_job_that_was_submitted_differs_from_its_file_in_its_edits_alone(shell: Shell) -> None:
    shell("run", shell.file("job.yaml", jaxjob("print(1)")))

    same = shell("diff", "job.yaml")
    edited = shell("diff", shell.file("edited.yaml", jaxjob("print(1)", workers=3)))

    assert (same.code, same.out) == (0, ""), same.out
    assert edited.code == 1
    changed = [line.strip() for line in edited.out.splitlines()[2:] if line[:1] in "+-"]
    assert [line.replace(" ", "") for line in changed] == ["-replicas:2", "+replicas:3"]


def test_every_worker_reads_where_worker_0_is_and_all_find_it(shell: Shell) -> None:
    program = """
import os, socket
address = os.environ["COORDINATOR_ADDRESS"], int(os.environ["COORDINATOR_PORT"])
if os.environ["PROCESS_ID"] == "0":
    with socket.create_server(address) as server:
        for _ in range(int(os.environ["NUM_PROCESSES"]) - 1):
            print("met", server.accept()[0].makefile().readline().strip())
else:
    while True:
        try:
            connection = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            pass
    connection.sendall(f"worker {os.environ['PROCESS_ID']}\\n".encode())
"""
    ended = shell("run", shell.file("job.yaml", jaxjob(program, workers=3)))

    assert ended.code == 0, ended.out + ended.err
    assert {"[worker-0] met worker 1", "[worker-0] met worker 2"} <= set(ended.out.splitlines())


def test_running_workers_take_no_others_unless_all_may_restart(shell: Shell) -> None:
    shell("submit", shell.file("job.yaml", jaxjob("import time; time.sleep(600)")))
    shell("wait", "jaxjob/digits", "--for", "Running")

    refused = shell("scale", "jaxjob/digits", "--workers", "3")
    grown = shell("scale", "jaxjob/digits", "--workers", "3", "--restart", "--wait", "--timeout", "60")
    shrunk = shell("scale", "jaxjob/digits", "--workers", "1")

    assert "can't scale up jaxjob/digits while it runs" in refused.err
    assert grown.code == 0, grown.out + grown.err
    assert "all replicas restart at the new size" in shrunk.out + shrunk.err
