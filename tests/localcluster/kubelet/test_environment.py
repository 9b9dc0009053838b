from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarragon.localcluster.kubelet.base import downward
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.images.images import Environment
from tarragon.localcluster.kubelet.pod import environment as env
from tarragon.localcluster.kubelet.pod.environment import MachineEnvironment
from tarragon.localcluster.kubelet.volumes.sources import PodObjects
from tests.localcluster.kubelet.builders import container, container_json, pod

NODE = {"cpu": 8000, "memory": 16 * 2**30 * 1000}
MACHINE = MachineEnvironment(caller={"PATH": "/bin", "HOME": "/home/me", "SECRET_TOKEN": "x"}, cpus=8, allocatable=NODE)
SOURCES = PodObjects(
    config_maps={"settings": {"lr": b"0.1", "steps": b"100"}},
    secrets={"keys": {"token": b"s3cret"}},
)


def declared(*variables: dict[str, Any], sources: PodObjects = SOURCES, **fields: Any) -> dict[str, str]:
    body = container_json(env=list(variables), **fields)
    described = pod("trainer", body, serviceAccountName="robot", metadata={"labels": {"app": "x"}, "annotations": {}})
    return env.manifest_variables(described, container(**body), sources, NODE)


def test_a_variable_may_refer_to_earlier_ones() -> None:
    result = declared(
        {"name": "HOST", "value": "ps-0"},
        {"name": "URL", "value": "http://$(HOST):$(PORT)/$$(HOST)"},
        {"name": "PORT", "value": "80"},
    )

    assert result["URL"] == "http://ps-0:$(PORT)/$(HOST)"


def test_a_variable_may_refer_to_values_from_a_config_map() -> None:
    result = declared(
        {"name": "ARGS", "value": "--lr=$(T_lr)"}, envFrom=[{"prefix": "T_", "configMapRef": {"name": "settings"}}]
    )

    assert result == {"T_lr": "0.1", "T_steps": "100", "ARGS": "--lr=0.1"}


def test_env_wins_over_env_from_and_later_sources_over_earlier_ones() -> None:
    sources = PodObjects(config_maps={"a": {"x": b"a", "y": b"a"}, "b": {"y": b"b", "z": b"b"}})

    result = declared(
        {"name": "z", "value": "mine"},
        sources=sources,
        envFrom=[{"configMapRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}],
    )

    assert result == {"x": "a", "y": "b", "z": "mine"}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"configMapKeyRef": {"name": "settings", "key": "lr"}}, "0.1"),
        ({"secretKeyRef": {"name": "keys", "key": "token"}}, "s3cret"),
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "trainer"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "default"),
        ({"fieldRef": {"fieldPath": "metadata.uid"}}, "uid-of-trainer"),
        ({"fieldRef": {"fieldPath": "metadata.labels['app']"}}, "x"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "n"),
        ({"fieldRef": {"fieldPath": "spec.serviceAccountName"}}, "robot"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.0.0.1"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}, "1024"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Gi"}}, "16"),
    ],
)
def test_a_value_is_read_from_its_source(source: dict[str, Any], value: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "1Gi"}}

    assert declared({"name": "V", "valueFrom": source}, resources=resources) == {"V": value}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "lr"}}, 'configmap "none" not found'),
        ({"configMapKeyRef": {"name": "settings", "key": "x"}}, "couldn't find key x in ConfigMap default/settings"),
        ({"secretKeyRef": {"name": "none", "key": "lr"}}, 'secret "none" not found'),
        ({"secretKeyRef": {"name": "keys", "key": "x"}}, "couldn't find key x in Secret default/keys"),
        ({"fieldRef": {"fieldPath": "spec.nope"}}, "unsupported fieldPath: spec.nope"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "x"}}, "container x not found"),
        ({"resourceFieldRef": {"resource": "cpu"}}, "unsupported container resource: cpu"),
    ],
)
def test_a_missing_source_of_a_value_is_named_in_the_error(source: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotStart) as refusal:
        declared({"name": "V", "valueFrom": source})

    assert str(refusal.value) == words
    assert refusal.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    "source",
    [
        {"configMapKeyRef": {"name": "none", "key": "lr", "optional": True}},
        {"configMapKeyRef": {"name": "settings", "key": "x", "optional": True}},
        {"secretKeyRef": {"name": "none", "key": "x", "optional": True}},
    ],
)
def test_a_variable_with_a_missing_optional_source_is_not_set(source: dict[str, Any]) -> None:
    assert declared({"name": "V", "valueFrom": source}) == {}


def test_commands_and_arguments_may_refer_to_variables() -> None:
    described = container(command=["python", "$(SCRIPT)"], args=["--lr=$(LR)", "$$(LR)", "$(NONE)"])

    result = env.command_line(described, Environment(folder=Path("/e")), {"SCRIPT": "x.py", "LR": "0.1"})

    assert result == ["python", "x.py", "--lr=0.1", "$(LR)", "$(NONE)"]


def test_arguments_without_a_command_follow_the_entrypoint_of_the_image() -> None:
    image = Environment(folder=Path("/e"), entrypoint=("python", "/app.py"))

    assert env.command_line(container(command=[], args=["--fast"]), image, {}) == ["python", "/app.py", "--fast"]
    assert env.command_line(container(command=["sh"], args=["--fast"]), image, {}) == ["sh", "--fast"]


def test_only_a_few_variables_of_the_caller_are_inherited(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").touch()

    result = env.machine_variables(MACHINE, Environment(folder=tmp_path))

    assert result == {
        "HOME": "/home/me",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the expected text
        "PATH": f"{tmp_path}/bin:/bin",
        "VIRTUAL_ENV": str(tmp_path),
    }


@pytest.mark.parametrize("spared", ["", "example.com,localhost"])
def test_local_connections_between_replicas_bypass_proxies(spared: str) -> None:
    caller = {"https_proxy": "http://proxy:3128", **({"NO_PROXY": spared} if spared else {})}

    result = env.machine_variables(
        MachineEnvironment(caller=caller, cpus=1, allocatable={}), Environment(folder=Path("/e"))
    )

    assert set(result["no_proxy"].split(",")) == {*filter(None, spared.split(",")), "127.0.0.1", "localhost"}
    assert result["NO_PROXY"] == result["no_proxy"]


def test_a_container_without_gpus_sees_none_and_uses_its_share_of_the_threads() -> None:
    assert env.training_variables(container(), MACHINE, {}, 3) == {
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_NUM_INTRAOP_THREADS": "3",
        "TF_NUM_INTEROP_THREADS": "2",
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
        "NPROC": "3",
        "PYTHONUNBUFFERED": "1",
        "GRPC_FAIL_FAST": "use_caller",
    }


def test_a_container_sees_its_gpus_in_pci_bus_order() -> None:
    result = env.training_variables(container(), MACHINE, {"nvidia.com/gpu": ("GPU-a", "GPU-b")}, 1)

    assert (result["CUDA_VISIBLE_DEVICES"], result["CUDA_DEVICE_ORDER"]) == ("GPU-a,GPU-b", "PCI_BUS_ID")
    assert result["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        ({"requests": {"cpu": "4"}}, "4"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, "2"),
        ({"requests": {"cpu": "500m"}}, "1"),
        ({"requests": {"cpu": "20"}}, "8"),
    ],
)
def test_threads_follow_the_cpu_limit_up_to_the_cpus_of_the_machine(resources: dict[str, Any], threads: str) -> None:
    variables = env.training_variables(container(resources=resources), MACHINE, {}, 3)

    assert variables["TF_NUM_INTRAOP_THREADS"] == threads


def test_the_downward_api_has_the_addresses_of_the_pod_status() -> None:
    described = Pod(metadata=pod().metadata, spec=pod().spec, status={"hostIP": "10.0.0.7", "podIP": ""})

    assert downward.field_value(described, "status.hostIP") == "10.0.0.7"
    assert downward.field_value(described, "status.podIPs") == "127.0.0.1"
