from __future__ import annotations

import datetime as dt
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.frameworks.plugin import tensorboard_name
from tarragon.kube.core import PODS, SERVICES
from tarragon.plan.reconcile.decide import decide
from tests.frameworks.jobs import job_of, tfjob, warnings
from tests.frameworks.test_mlkube import tfjob as of_2017
from tests.plan.world import World, is_idle, manifest

BOARD = "dist-tensorboard"
FOLDER = "tarragon.dev/tensorboard"
ENDS = "tarragon.dev/tensorboard-ends-with-job"


def asked(annotations: Mapping[str, str] = {}, **how: Any) -> dict[str, Any]:
    """A job of two workers that wants a TensorBoard over /logs."""
    job = manifest({"Worker": 2}, **how)
    job["metadata"]["annotations"] = {FOLDER: "/logs", **annotations}
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"] = [{"name": "logs", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "other", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "logs", "mountPath": "/logs", "subPathExpr": "$(POD_NAME)"}]
    return job


def running(job: dict[str, Any]) -> World:
    world = World(job)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def finished(job: dict[str, Any]) -> World:
    world = running(job)
    world.exit("dist-worker-0", 0)
    world.settle()
    return world


def test_it_is_made_after_the_gang_and_found_by_its_service() -> None:
    world = running(asked())

    pod, service = world.pods[BOARD], world.services[BOARD]
    assert list(world.created) == ["dist-worker-0", "dist-worker-1", BOARD]
    assert pod["spec"]["restartPolicy"] == "Always"
    assert "nodeName" not in pod["spec"]
    assert service["spec"]["ports"] == [{"name": "tb-port", "port": 80, "targetPort": 6006}]
    assert service["spec"]["type"] == "ClusterIP"
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "job-1"
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["command"][-2:]) == ("train", ["--logdir", "/logs"])


def test_it_mounts_what_the_deciding_replica_mounts_and_all_of_it() -> None:
    spec = running(asked()).pods[BOARD]["spec"]

    assert [volume["name"] for volume in spec["volumes"]] == ["logs"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "logs", "mountPath": "/logs"}]


def test_it_may_have_an_image_of_its_own() -> None:
    world = running(asked({"tarragon.dev/tensorboard-image": "board:2"}))

    assert world.pods[BOARD]["spec"]["containers"][0]["image"] == "board:2"


def test_no_selector_that_counts_replicas_counts_it() -> None:
    world = running(asked())
    labels = world.pods[BOARD]["metadata"]["labels"]
    selectors = [dict(pair.split("=") for pair in world.tarragon["selector"].split(","))]
    selectors += [service["spec"]["selector"] for name, service in world.services.items() if name != BOARD]

    assert not [selector for selector in selectors if selector.items() <= labels.items()]
    assert labels["app"] == "tensorboard"
    assert (world.tarragon["ready"], world.tarragon["replicas"]) == ("2/2", 2)


def test_it_is_made_anew_when_it_is_gone() -> None:
    world = running(asked())
    world.vanish(BOARD)
    world.settle()

    assert world.created[BOARD] == 2
    assert world.conditions()["Running"]


def test_one_that_was_evicted_is_replaced_after_a_while_and_the_job_does_not_care() -> None:
    world = running(asked())
    world.disrupt(BOARD)
    step = world.settle()

    assert step.requeue_at is not None
    assert world.created[BOARD] == 1
    world.pass_time(61)
    world.settle()
    assert world.created[BOARD] == 2
    assert world.tarragon["restarts"]["total"] == 0
    assert "Restarting" not in world.conditions()


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_it_serves_after_the_end_whatever_is_cleaned_up(policy: str) -> None:
    world = finished(asked(run_policy={"cleanPodPolicy": policy}))

    assert world.conditions()["Succeeded"]
    assert set(world.services) == {BOARD}
    assert BOARD in world.pods
    world.vanish(BOARD)
    world.settle()
    assert world.created[BOARD] == 2


def test_it_ends_with_the_job_when_asked() -> None:
    world = finished(asked({ENDS: "true"}))

    assert BOARD not in world.pods
    assert not world.services
    assert is_idle(world.step())


def test_a_suspended_job_keeps_the_one_that_is_there() -> None:
    world = running(asked(run_policy={"suspend": False}))
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()

    assert set(world.pods) == {BOARD}
    assert set(world.services) == {BOARD}


def test_there_is_none_before_the_job_has_its_places() -> None:
    world = World(asked())
    world.settle()
    world.keep_waiting("InsufficientResources", "it is full")
    world.settle()

    assert not world.pods
    assert not world.services


def test_it_goes_when_nobody_asks_for_it_any_more() -> None:
    world = running(asked())
    world.patch_job({"metadata": {"annotations": {FOLDER: None}}})
    world.settle()

    assert set(world.pods) == {"dist-worker-0", "dist-worker-1"}
    assert set(world.services) == {"dist-worker-0", "dist-worker-1"}


def test_an_edit_that_makes_no_sense_leaves_it_alone() -> None:
    world = running(asked())
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": -1}}})
    world.settle()

    assert BOARD in world.pods


def test_a_stranger_of_its_name_keeps_nothing_waiting() -> None:
    world = World(asked())
    world.stranger(BOARD)
    world.stranger(BOARD, "services")
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()

    assert world.conditions()["Running"]


def test_what_is_made_for_it_may_be_refused() -> None:
    world = World(asked())
    world.settle()
    world.admit()
    world.step()
    creates = world.decide().creates

    assert [(create.resource, create.is_optional) for create in creates] == [(SERVICES, True), (PODS, True)]


def test_one_that_was_refused_is_not_asked_for_at_every_look() -> None:
    world = World(asked())
    world.settle()
    world.admit()
    world.step()
    again = world.now + dt.timedelta(seconds=60)
    refused = replace(world.observed(), optional_retry_at={BOARD: again})

    step = decide(world.framework, refused, world.now)
    assert (step.creates, step.requeue_at) == ([], again)
    assert [create.resource for create in decide(world.framework, refused, again).creates] == [SERVICES, PODS]


def test_it_is_as_secure_as_the_replica_that_decides() -> None:
    job = asked()
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod["containers"][0]["securityContext"] = restricted

    spec = running(job).pods[BOARD]["spec"]
    assert spec["securityContext"] == pod["securityContext"]
    assert spec["containers"][0]["securityContext"] == restricted


def test_mlkube_has_a_field_for_it() -> None:
    board = {
        "logDir": "/mnt/logs",
        "serviceType": "LoadBalancer",
        "volumes": [{"name": "azurefile", "azureFile": {"secretName": "s", "shareName": "data"}}],
        "volumeMounts": [{"name": "azurefile", "mountPath": "/mnt/logs"}],
    }
    found = job_of(of_2017(tensorboard=board, tfImage="tensorflow/tensorflow:1.4.0")).tensorboard

    assert found is not None
    assert (found.log_dir, found.image) == ("/mnt/logs", "tensorflow/tensorflow:1.4.0")
    assert (found.service_type, found.ends_with_job) == ("LoadBalancer", False)
    assert (found.volumes, found.volume_mounts) == (board["volumes"], board["volumeMounts"])


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({FOLDER: ""}, f'metadata.annotations["{FOLDER}"]: is empty; write the directory of the summaries'),
        (
            {FOLDER: "/l", ENDS: "yes"},
            f'metadata.annotations["{ENDS}"]: unsupported value \'yes\'; write "true", or remove it',
        ),
        (
            {ENDS: "true"},
            f'metadata.annotations["{ENDS}"]: has no effect without {FOLDER}; add that, or remove this one',
        ),
    ],
)
def test_a_slip_in_an_annotation_is_told_and_keeps_no_job_from_running(
    annotations: dict[str, str], message: str
) -> None:
    job = tfjob()
    job["metadata"]["annotations"] = annotations

    assert warnings(job) == [message]


def test_the_annotations_are_those_that_the_page_about_them_has() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tensorboard.md").read_text()
    (written,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    job = asked(yaml.safe_load(written)["metadata"]["annotations"])

    board = job_of(job).tensorboard
    assert board is not None
    assert (board.log_dir, board.image, board.ends_with_job) == ("/models", "tensorflow/tensorflow:2.21.0", True)


def test_names_are_no_longer_than_a_service_may_be_called() -> None:
    long = [job_of({**tfjob(), "metadata": {"name": f"{'a' * 50}{end}"}}) for end in ("bc", "bd")]

    names = [tensorboard_name(job) for job in long]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {63}
    assert all(name.endswith("-tensorboard") for name in names)


@pytest.mark.parametrize(
    ("address", "programs", "message"),
    [
        ("a-tensorboard.n1.svc:80", ["tensorboard"], "tensorboard --host 0.0.0.0 --port 6006 --logdir /logs"),
        ("127.0.0.1:29001", ["tensorboard"], "tensorboard --host 127.0.0.1 --port 29001 --logdir /logs"),
        (
            "a-tensorboard.n1.svc:80",
            ["python3"],
            "python3 -m tensorboard.main --host 0.0.0.0 --port 6006 --logdir /logs",
        ),
    ],
)
def test_its_command_finds_tensorboard_and_the_port_that_it_is_to_serve_at(
    tmp_path: Path, address: str, programs: list[str], message: str
) -> None:
    for name in programs:
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)
    command = running(asked()).pods[BOARD]["spec"]["containers"][0]["command"]

    done = subprocess.run(
        ["/bin/sh", *command[1:]],
        env={"PATH": str(tmp_path), "TENSORBOARD_ADDRESS": address},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == message
