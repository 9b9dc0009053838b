"""What `describe` says of a TensorBoard that does not serve."""

from __future__ import annotations

import json
import venv
from dataclasses import replace

import msgspec

from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.cli.report.tensorboard import tensorboard_problems
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.kube.core import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from tarragon.kube.meta import CustomObject, CustomObjectMeta, ObjectMeta, OwnerReference
from tests.cli.conftest import Shell
from tests.cli.manifests import group, python, worker
from tests.cli.scenes import BEGIN, running, waiting

OWNER = OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name="digits", uid="u", controller=True)
PIPX = "pipx runpip tarragon install"
MISSING = (
    "/opt/bin/python: Error while finding module specification for 'tensorboard.main'\nNo module named 'tensorboard'"
)


def a_job(phase: Phase = Phase.RUNNING, **annotations: str) -> ClusterJob:
    spec = {"tfReplicaSpecs": {"Worker": group(python("pass"))}}
    wanted = {"tarragon.dev/tensorboard": "/logs", **annotations}
    metadata = CustomObjectMeta(name="digits", namespace="n1", uid="u", creation_timestamp=BEGIN, annotations=wanted)
    raw = msgspec.Raw(json.dumps(spec))
    found = CustomObject(api_version="kubeflow.org/v1", kind="TFJob", metadata=metadata, raw_spec=raw)
    return replace(read_job(FRAMEWORKS[0], found), status=JobStatus(phase=phase))


def a_board(state: ContainerState, before: ContainerState | None = None) -> Pod:
    status = ContainerStatus(name="tensorboard", state=state, last_state=before or ContainerState())
    return Pod(
        metadata=ObjectMeta(name="digits-tensorboard", namespace="n1", uid="b", owner_references=[OWNER]),
        spec=PodSpec(node_name="here", containers=[Container(name="tensorboard")]),
        status=PodStatus(phase="Pending" if state.waiting else "Running", container_statuses=[status]),
    )


def test_of_one_that_runs_nothing_is_said() -> None:
    assert list(tensorboard_problems(a_job(), [a_board(running())], PIPX)) == []


def test_a_pod_of_its_name_that_another_object_controls_is_not_the_jobs() -> None:
    board = a_board(running())
    other = msgspec.structs.replace(OWNER, api_version="nowhere.example/v1")
    board = msgspec.structs.replace(board, metadata=msgspec.structs.replace(board.metadata, owner_references=[other]))

    assert list(tensorboard_problems(a_job(), [board], PIPX)) == ["is not running yet: its pod does not exist"]


def test_one_that_crashes_shows_its_state_its_last_words_and_what_to_do() -> None:
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=1, reason="Error", message=MISSING))

    problems = list(tensorboard_problems(a_job(), [a_board(waiting("CrashLoopBackOff", "back-off 10s"), ended)], PIPX))

    assert problems == [
        "is not running: pod digits-tensorboard is CrashLoopBackOff: back-off 10s; it ended with exit code 1",
        "  │ /opt/bin/python: Error while finding module specification for 'tensorboard.main'",
        "  │ No module named 'tensorboard'",
        "Probably: TensorBoard is not installed in python:3",
        f"  {PIPX} tensorboard, or use an image that has it: annotation tarragon.dev/tensorboard-image",
    ]


def test_one_without_a_pod_does_not_serve_yet_and_one_that_ends_with_its_job_is_not_missed() -> None:
    ends = {"tarragon.dev/tensorboard-ends-with-job": "true"}

    assert list(tensorboard_problems(a_job(), [], PIPX)) == ["is not running yet: its pod does not exist"]
    assert list(tensorboard_problems(a_job(Phase.SUCCEEDED), [], PIPX)) == ["is not running: its pod is gone"]
    assert list(tensorboard_problems(a_job(Phase.SUCCEEDED, **ends), [], PIPX)) == []


def test_describe_shows_beside_the_address_why_nothing_answers_there(shell: Shell) -> None:
    venv.create(shell.folder / "bare", with_pip=False)
    job = json.loads(worker("digits", "print(1)"))
    job["metadata"]["annotations"] = {
        "tarragon.dev/tensorboard": "/logs",
        "tarragon.dev/tensorboard-image": "nobody/bare:1",
    }
    shell("run", shell.file("job.yaml", json.dumps(job)), "--image-env", "nobody/bare:1=bare")

    descriptions = (shell("describe", "digits").out for _ in range(100))

    assert any("Probably: TensorBoard is not installed in nobody/bare:1" in each for each in descriptions)
