from __future__ import annotations

import json
from typing import Any

import pytest

from tarragon.cli.manifest.pod_rules import rejected_fields
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, mpi_job, python

POD = "spec.tfReplicaSpecs.Worker.template.spec"


def json_with(training: str, **pod: Any) -> str:
    """The job with more fields in the pods of its workers."""
    found = json.loads(training)
    found["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"] |= pod
    return json.dumps(found)


def rejected(container: dict[str, Any], **pod: Any) -> list[str]:
    spec = {"containers": [{"name": "tensorflow", "image": "i", **container}], **pod}
    found = {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": spec}}}}}
    return [str(each) for each in rejected_fields(found, [])]


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        (
            {"resources": {"requests": {"nvidia.com/gpu": 1}}},
            "containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        ({"env": [{"name": "A=B", "value": "1"}]}, 'containers[0].env[0].name: Invalid value: "A=B": '),
        ({"imagePullPolicy": "Sometimes"}, 'containers[0].imagePullPolicy: Unsupported value: "Sometimes": '),
    ],
)
def test_what_an_api_server_would_reject_of_a_pod_is_a_problem_of_its_job(
    container: dict[str, Any], problem: str
) -> None:
    (found,) = rejected(container)

    assert found.startswith(f"{POD}.{problem}")


def test_nulls_defaults_and_the_restart_policy_of_a_template_are_no_problems() -> None:
    assert rejected({"env": None, "ports": [{"containerPort": 80}]}, restartPolicy="Sometimes", volumes=None) == []


def test_validate_reports_what_the_api_server_would_reject(shell: Shell) -> None:
    grace = json_with(job("digits", Worker=group(python("print(1)"))), terminationGracePeriodSeconds=-1)

    ended = shell("validate", shell.file("job.yaml", grace))

    assert ended.code == 2
    assert f"{POD}.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0" in ended.err


def test_volumes_that_both_an_mpijob_and_its_operator_define_are_no_duplicates(shell: Shell) -> None:
    volumes = [{"name": "ssh-auth", "secret": {"secretName": "mine"}}]
    launcher = python("print(1)", volumeMounts=[{"name": "ssh-auth", "mountPath": "/keys"}])
    training = mpi_job("pi", Launcher=group(launcher, volumes=volumes), Worker=group(python("print(1)"), replicas=2))

    assert shell("validate", shell.file("job.yaml", training)).code == 0
