"""Accelerators by configuration, as the operator of v1alpha1 had them."""

from __future__ import annotations

from typing import Any

import yaml

from tarragon.plan.objects.accelerators import (
    Accelerator,
    ControllerConfig,
    HostVolume,
    decode_controller_config,
    with_accelerators,
)
from tarragon.plan.objects.settings import OperatorSettings
from tests.plan.world import World, manifest

GPU = "alpha.kubernetes.io/nvidia-gpu"
LIBRARY = HostVolume(name="lib", host_path="/home/kubernetes/bin/nvidia/lib", mount_path="/usr/local/nvidia/lib64")
NVIDIA = Accelerator(volumes=[LIBRARY], env={"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"})

FILE = """
grpcServerFilePath: /opt/mlkube/grpc_tensorflow_server/grpc_tensorflow_server.py
accelerators:
  alpha.kubernetes.io/nvidia-gpu:
    volumes:
      - name: lib
        mountPath: /usr/local/nvidia/lib64
        hostPath: /home/kubernetes/bin/nvidia/lib
    envVars:
      - name: LD_LIBRARY_PATH
        value: /usr/local/nvidia/lib64
"""


def pod(resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    spec = {name: more.pop(name) for name in ("volumes",) if name in more}
    container = {"name": "tensorflow", **({"resources": resources} if resources else {}), **more}
    return {"containers": [{"name": "proxy", "resources": {"limits": {GPU: 1}}}, container], **spec}


def main(spec: Any) -> dict[str, Any]:
    return next(container for container in spec["containers"] if container["name"] == "tensorflow")


def test_who_asks_for_one_gets_its_volumes_and_its_variables() -> None:
    for resources in ({"limits": {GPU: 1}}, {"requests": {GPU: 1}}):
        found = with_accelerators(pod(resources), "tensorflow", {GPU: NVIDIA})

        assert found["volumes"] == [{"name": "lib", "hostPath": {"path": LIBRARY.host_path}}]
        assert main(found)["volumeMounts"] == [{"name": "lib", "mountPath": LIBRARY.mount_path}]
        assert main(found)["env"] == [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}]
        assert "volumeMounts" not in found["containers"][0]


def test_who_asks_for_none_gets_nothing_whatever_its_sidecars_ask_for() -> None:
    assert with_accelerators(pod({"limits": {"cpu": 1}}), "tensorflow", {GPU: NVIDIA}) == pod({"limits": {"cpu": 1}})


def test_what_the_job_brings_itself_stays_as_it_is() -> None:
    own: dict[str, Any] = {
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/mine"}],
        "volumeMounts": [{"name": "mine", "mountPath": LIBRARY.mount_path}],
        "volumes": [{"name": "mine", "emptyDir": {}}],
    }
    spec = pod({"limits": {GPU: 1}}, **own)

    assert with_accelerators(spec, "tensorflow", {GPU: NVIDIA}) == spec


def test_the_same_volume_is_used_again_and_another_one_of_its_name_is_left_alone() -> None:
    same = [{"name": "lib", "hostPath": {"path": LIBRARY.host_path, "type": "Directory"}}]
    assert with_accelerators(pod({"limits": {GPU: 1}}, volumes=same), "tensorflow", {GPU: NVIDIA})["volumes"] == same

    other = [{"name": "lib", "emptyDir": {}}]
    found = with_accelerators(pod({"limits": {GPU: 1}}, volumes=other), "tensorflow", {GPU: NVIDIA})
    assert [volume["name"] for volume in found["volumes"]] == ["lib", "lib-accelerator"]
    assert main(found)["volumeMounts"] == [{"name": "lib-accelerator", "mountPath": LIBRARY.mount_path}]


def test_two_accelerators_that_bring_the_same_bring_it_once() -> None:
    found = with_accelerators(
        pod({"limits": {GPU: 1, "amd.com/gpu": 1}}), "tensorflow", {GPU: NVIDIA, "amd.com/gpu": NVIDIA}
    )

    assert len(found["volumes"]) == len(main(found)["volumeMounts"]) == len(main(found)["env"]) == 1


def test_every_generation_has_them() -> None:
    job = manifest({"Worker": 1})
    container = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {GPU: "1"}}
    listed = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": "dist", "namespace": "n1"},
        "spec": {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": {"spec": {"containers": [container]}}}]},
    }
    for each in (job, listed):
        world = World(each, OperatorSettings(accelerators={GPU: NVIDIA}))
        world.settle()
        world.admit()
        world.settle()
        [made] = world.pods.values()
        assert made["spec"]["volumes"] == [{"name": "lib", "hostPath": {"path": LIBRARY.host_path}}]
        assert {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"} in main(made["spec"])["env"]


def test_the_file_of_2017_is_read_as_it_is() -> None:
    config = decode_controller_config(yaml.safe_load(FILE))

    assert config.accelerators == {GPU: NVIDIA}
    assert config.problems == []
    assert [warning.path for warning in config.warnings] == ["grpcServerFilePath"]
    assert decode_controller_config(None) == ControllerConfig()


def test_every_slip_is_told_with_its_place() -> None:
    broken = """
accelerator: {}
accelerators:
  nvidia.com/gpu:
    volumes:
      - {name: Lib, hostPath: lib, mountPath: /a}
      - {name: b, mountPath: /a}
    envVars:
      - {name: N, value: 1}
      - N=1
  amd.com/gpu: 3
"""
    problems = [str(problem) for problem in decode_controller_config(yaml.safe_load(broken)).problems]

    assert problems == [
        "accelerator: is not a known field; did you mean accelerators?",
        (
            "accelerators[nvidia.com/gpu].volumes[0].name: 'Lib' is not a valid volume name; "
            "use lower-case letters, digits and -"
        ),
        "accelerators[nvidia.com/gpu].volumes[0].hostPath: 'lib' is not an absolute path; start it with /",
        "accelerators[nvidia.com/gpu].volumes[1].hostPath: is missing",
        "accelerators[nvidia.com/gpu].envVars[0].value: must be a string, not 1; put it in quotes",
        "accelerators[nvidia.com/gpu].envVars[1]: must be an object with the fields name, value, not 'N=1'",
        "accelerators[nvidia.com/gpu].envVars[1].name: is missing",
        "accelerators[nvidia.com/gpu].volumes: has the mountPath '/a' more than once",
        "accelerators[amd.com/gpu]: must be an object with the fields volumes, envVars, not 3",
    ]
