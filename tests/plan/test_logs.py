from __future__ import annotations

import json
from typing import Any

import pytest

from tarragon.kube.core import CONFIG_MAPS
from tarragon.plan.objects.logs import (
    FIELDS_VARIABLE,
    MOUNT_PATH,
    SCRIPTS,
    TERMINATION_PATH_VARIABLE,
    VOLUME,
    LogFormat,
)
from tarragon.plan.objects.settings import OperatorSettings
from tests.frameworks.jobs import problems, warnings
from tests.frameworks.listed_jobs import cluster
from tests.plan.world import World, manifest

BOTH = {"PS": 1, "Worker": 1}


def job(annotated: str | None = None, **container: Any) -> dict[str, Any]:
    made = manifest(BOTH)
    if annotated is not None:
        made["metadata"]["annotations"] = {"tarragon.dev/logs": annotated}
    for group in made["spec"]["tfReplicaSpecs"].values():
        group["template"]["spec"]["containers"][0] |= container
        for name in [name for name, value in container.items() if value is None]:
            del group["template"]["spec"]["containers"][0][name]
    return made


def started(made: dict[str, Any], usual: LogFormat = LogFormat.TEXT) -> World:
    world = World(made, OperatorSettings(log_format=usual))
    world.settle()
    world.admit()
    world.settle()
    return world


def main(world: World, pod: str = "dist-ps-0") -> dict[str, Any]:
    found: dict[str, Any] = world.pods[pod]["spec"]["containers"][0]
    return found


def env(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


def is_json(world: World) -> bool:
    return FIELDS_VARIABLE in env(main(world))


@pytest.mark.parametrize(
    ("annotated", "usual", "expected"),
    [
        (None, LogFormat.TEXT, False),
        (None, LogFormat.JSON, True),
        ("json", LogFormat.TEXT, True),
        ("text", LogFormat.JSON, False),
        ("json", LogFormat.JSON, True),
    ],
)
def test_the_annotation_wins_over_the_setting_both_ways(
    annotated: str | None,
    usual: LogFormat,
    expected: bool,  # noqa: FBT001
) -> None:
    world = started(job(annotated), usual)

    assert is_json(world) is expected
    assert len(world.config_maps) == expected


def test_an_annotation_with_a_slip_in_it_is_told() -> None:
    (problem,) = problems(job("jason"))

    assert problem.startswith('metadata.annotations["tarragon.dev/logs"]: ')
    assert "write json or text, or remove it" in problem


def test_the_command_is_run_by_our_script_and_keeps_its_arguments() -> None:
    container = main(started(job("json", command=["python", "train.py"], args=["--steps", "$(STEPS)"])))

    assert container["command"][:2] == ["sh", "-c"]
    assert container["command"][3:] == [f"{MOUNT_PATH}/json_logs.py", "python", "train.py"]
    assert container["args"] == ["--steps", "$(STEPS)"]
    assert "$(" not in container["command"][2]


def test_the_scripts_are_mounted_from_a_config_map_of_this_job_that_is_made_before_the_pods() -> None:
    world = started(job("json"))

    (name,) = world.config_maps
    spec = world.pods["dist-ps-0"]["spec"]
    assert name.startswith("dist-logs-")
    assert set(world.config_maps[name]["data"]) == set(SCRIPTS)
    assert spec["volumes"] == [{"name": VOLUME, "configMap": {"name": name, "optional": True}}]
    assert main(world)["volumeMounts"] == [{"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}]
    assert world.config_maps[name]["metadata"]["ownerReferences"][0]["uid"] == "job-1"


def test_only_the_scripts_of_logs_are_what_a_job_does_without() -> None:
    world = World(cluster(), OperatorSettings(log_format=LogFormat.JSON))
    world.settle()
    world.admit()
    maps = [create for create in world.decide().creates if create.resource == CONFIG_MAPS]

    assert [(create.body["metadata"]["name"][:3], create.is_optional) for create in maps] == [
        ("cm-", False),
        ("j-l", True),
    ]


def test_every_replica_is_told_who_it_is() -> None:
    world = started(job("json"))

    fields = {name: json.loads(env(main(world, name))[FIELDS_VARIABLE]) for name in world.pods}

    assert fields["dist-ps-0"] == {
        "job": "dist",
        "namespace": "n1",
        "pod": "dist-ps-0",
        "replica_type": "ps",
        "replica_index": 0,
        "runtime_id": fields["dist-worker-0"]["runtime_id"],
        "uid": "job-1",
    }
    assert fields["dist-worker-0"]["replica_type"] == "worker"
    assert len(fields["dist-ps-0"]["runtime_id"]) == 4


def test_the_last_words_go_where_the_container_has_its_termination_message() -> None:
    assert env(main(started(job("json"))))[TERMINATION_PATH_VARIABLE] == "/dev/termination-log"
    assert env(main(started(job("json", terminationMessagePath="/tmp/last"))))[TERMINATION_PATH_VARIABLE] == "/tmp/last"  # noqa: S108
    assert TERMINATION_PATH_VARIABLE not in env(main(started(job("json", terminationMessagePolicy="File"))))


def test_sidecars_stay_as_they_are() -> None:
    made = job("json")
    sidecar = {"name": "proxy", "image": "proxy", "command": ["proxy"]}
    made["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"].append(sidecar)

    world = started(made)

    assert world.pods["dist-ps-0"]["spec"]["containers"][1]["command"] == ["proxy"]
    assert is_json(world)


def test_of_a_container_without_a_command_nothing_is_changed() -> None:
    """PYTHONPATH would replace that of its image."""
    container = main(started(job("json", command=None)))

    assert "volumeMounts" not in container
    assert "command" not in container
    assert {variable["name"] for variable in container["env"]} == {"TF_CONFIG"}


def test_that_its_log_stays_plain_is_told() -> None:
    assert [message.split(":")[0] for message in warnings(job("json", command=None))] == [
        "spec.tfReplicaSpecs.PS.template.spec.containers",
        "spec.tfReplicaSpecs.Worker.template.spec.containers",
    ]
    assert warnings(job("json")) == warnings(job("text", command=None)) == []


@pytest.mark.parametrize(("before", "after"), [("/app", f"{MOUNT_PATH}:/app"), ("", MOUNT_PATH)])
def test_a_container_without_a_command_that_sets_pythonpath_gets_our_folder_in_front(before: str, after: str) -> None:
    container = main(started(job("json", command=None, env=[{"name": "PYTHONPATH", "value": before}])))

    assert env(container)["PYTHONPATH"] == after
    assert FIELDS_VARIABLE in env(container)
    assert "command" not in container


def test_whoever_asks_for_a_terminal_gets_plain_text() -> None:
    assert not is_json(started(job("json", tty=True)))
