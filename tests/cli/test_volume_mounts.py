from __future__ import annotations

from typing import Any

import pytest

from tarragon.cli.manifest.volume_mounts import mount_problems, unused_volumes
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, mpi_job, python

POD = "spec.tfReplicaSpecs.Worker.template.spec"


def manifest(volumes: list[str], *mounts: tuple[str, str], **pod: Any) -> dict[str, Any]:
    """A job whose container mounts each volume at a path."""
    points = [{"name": name, "mountPath": path} for name, path in mounts]
    spec = {"containers": [{"name": "tensorflow", "volumeMounts": points}], **pod}
    template = {"spec": {**spec, "volumes": [{"name": name, "emptyDir": {}} for name in volumes]}}
    return {"spec": {"tfReplicaSpecs": {"Worker": {"template": template}}}}


def test_volumes_and_mounts_that_belong_together_have_no_problem() -> None:
    found = manifest(["data"], ("data", "/data"))

    assert [*mount_problems(found, []), *unused_volumes(found)] == []


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (
            manifest([], ("data", "/data")),
            (
                f"{POD}.containers[0].volumeMounts[0].name: the pod has no volume data; "
                "define it in the volumes of the pod"
            ),
        ),
        (
            manifest(["data"], ("dta", "/data")),
            f"{POD}.containers[0].volumeMounts[0].name: the pod has no volume dta; did you mean data?",
        ),
        (
            manifest([], initContainers=[{"name": "i", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]),
            (
                f"{POD}.initContainers[0].volumeMounts[0].name: the pod has no volume x; "
                "define it in the volumes of the pod"
            ),
        ),
        (manifest(["a", "a"], ("a", "/a")), f"{POD}.volumes[1].name: duplicate volume name a"),
        (
            manifest(["a", "b"], ("a", "/a"), ("b", "/a")),
            f"{POD}.containers[0].volumeMounts[1].mountPath: /a is mounted twice",
        ),
    ],
)
def test_a_pod_that_the_api_server_would_reject_is_reported_with_the_job(found: dict[str, Any], problem: str) -> None:
    assert [str(each) for each in mount_problems(found, [])] == [problem]


def test_a_volume_that_the_operator_adds_may_be_mounted() -> None:
    assert list(mount_problems(manifest([], ("mpi-job-config", "/etc/mpi")), ["mpi-job-config"])) == []


def test_a_volume_that_nobody_mounts_is_noted() -> None:
    found = manifest(["data", "block"], containers=[{"name": "c", "volumeDevices": [{"name": "block"}]}])

    assert [str(each) for each in unused_volumes(found)] == [
        (
            f"{POD}.volumes[0]: no container mounts the volume data; "
            "add it to the volumeMounts of a container, or remove it"
        )
    ]


def test_run_and_validate_refuse_a_mount_without_a_volume_and_warn_of_an_unused_volume(shell: Shell) -> None:
    container = python("print(1)", volumeMounts=[{"name": "dta", "mountPath": "/data"}])
    training = job("digits", Worker=group(container, volumes=[{"name": "data", "emptyDir": {}}]))
    name = shell.file("job.yaml", training)

    run, validated = shell("run", name), shell("validate", name)

    for ended in (run, validated):
        assert ended.code == 2
        assert "the pod has no volume dta; did you mean data?" in ended.err
    assert "warning: " in validated.err
    assert "no container mounts the volume data" in validated.err


def test_the_volumes_of_an_mpijobs_operator_count(shell: Shell) -> None:
    launcher = python("print(1)", volumeMounts=[{"name": "mpi-job-config", "mountPath": "/here"}])

    assert shell("validate", shell.file("job.yaml", mpi_job("pi", Launcher=group(launcher)))).code == 0
