"""Pods that share a GPU which an anchor holds, the anchors, and what jobs say until they are there."""

from __future__ import annotations

import datetime as dt
import os
import signal
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.job.status import Admission
from tarragon.kube.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    Node,
    NodeStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from tarragon.kube.meta import Key, ObjectMeta
from tarragon.plan.lifecycle.gpu_anchors import anchor_wait
from tarragon.plan.objects.gpu_anchors import AnchorSettings, anchor_place, build_anchor
from tarragon.plan.objects.vgpus import GpuWait, SharedGpu, with_vgpu
from tarragon.plan.status.creation_failures import timeout_for
from tests.plan.world import START, World, manifest

UUID = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
GI = 2**30
CARD = SharedGpu(uuid=UUID, memory=80 * GI)
PIPES = "/run/mps"
CLIENT = SharedGpu(uuid=UUID, memory=80 * GI, mps_pipes=PIPES)
SHARE = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "0.75"}


def pod(*containers: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"annotations": dict(SHARE if annotations is None else annotations)},
        "spec": {"containers": list(containers or [{"name": "c"}]), **spec},
    }


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container.get("env", [])}


# --------------------------------------------------------------------------------------------------- pods that share it


def test_all_containers_of_a_pod_see_the_gpu_and_its_limits() -> None:
    found = with_vgpu(pod({"name": "c"}, {"name": "sidecar"}, initContainers=[{"name": "first"}]), 1, CARD)

    annotations = found["metadata"]["annotations"]
    assert (annotations["tarragon.dev/vgpu"], annotations["tarragon.dev/gpu-uuid"]) == ("1", UUID)
    containers = [*found["spec"]["initContainers"], *found["spec"]["containers"]]
    assert [variables(each) for each in containers] == [
        {
            "NVIDIA_VISIBLE_DEVICES": UUID,
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4921",
        }
    ] * 3
    assert "volumes" not in found["spec"]


def test_a_kubelet_that_knows_vgpus_gets_the_number_only() -> None:
    found = with_vgpu(pod(), 1)

    assert found["metadata"]["annotations"] == {**SHARE, "tarragon.dev/vgpu": "1"}
    assert found["spec"] == pod()["spec"]


def test_the_gpu_is_not_the_users_to_choose_but_the_rest_is() -> None:
    users = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "all",
        "XLA_CLIENT_MEM_FRACTION": ".3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "false",
        "MINE": "$(NVIDIA_VISIBLE_DEVICES)",
    }
    env = [{"name": name, "value": value} for name, value in users.items()]
    (container,) = with_vgpu(pod({"name": "c", "env": env}), 0, CARD)["spec"]["containers"]

    assert variables(container) == {**users, "NVIDIA_VISIBLE_DEVICES": UUID}
    names = [each["name"] for each in container["env"]]
    assert names.index("NVIDIA_VISIBLE_DEVICES") < names.index("MINE")


def test_without_the_memory_of_the_gpu_there_is_no_limit_but_one_in_bytes() -> None:
    unknown = SharedGpu(uuid=UUID, mps_pipes=PIPES)
    (part,) = with_vgpu(pod(), 0, unknown)["spec"]["containers"]
    (amount,) = with_vgpu(pod(annotations={**SHARE, "kubeshare/gpu_mem": str(3 * GI)}), 0, unknown)["spec"][
        "containers"
    ]

    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in variables(part)
    assert variables(amount)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in {**variables(part), **variables(amount)}


def test_clients_of_mps_get_its_pipes_and_their_limits() -> None:
    found = with_vgpu(
        pod({"name": "c", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}, volumes=[{"name": "x"}]), 0, CLIENT
    )
    (container,) = found["spec"]["containers"]

    assert {name: value for name, value in variables(container).items() if name.startswith("CUDA_MPS")} == {
        "CUDA_MPS_PIPE_DIRECTORY": PIPES,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "75",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40960M",
    }
    assert found["spec"]["volumes"] == [
        {"name": "x"},
        {"name": "tarragon-mps", "hostPath": {"path": PIPES, "type": "Directory"}},
    ]
    assert container["volumeMounts"] == [
        {"name": "x", "mountPath": "/x"},
        {"name": "tarragon-mps", "mountPath": PIPES},
    ]


def test_a_volume_that_the_user_mounts_at_the_pipes_stays() -> None:
    mine = {"name": "mine", "mountPath": PIPES}
    (container,) = with_vgpu(pod({"name": "c", "volumeMounts": [mine]}), 0, CLIENT)["spec"]["containers"]

    assert container["volumeMounts"] == [mine]


def test_a_share_in_hami_s_form_names_the_gpu_too() -> None:
    resources = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50", "cpu": "2"}}
    found = with_vgpu(pod({"name": "c", "resources": resources}, annotations={}), 0, CLIENT)
    (container,) = found["spec"]["containers"]

    assert container["resources"] == {"limits": {"cpu": "2"}}
    assert variables(container)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


# ----------------------------------------------------------------------------------------------------------- the anchor


NODE = Node(metadata=ObjectMeta(name="gpu-1", uid="node-uid"))
SETTINGS = AnchorSettings(namespace="tarragon-system", image_pull_secrets=["registry"])


def test_an_anchor_has_one_gpu_on_its_node_and_belongs_to_it() -> None:
    body = build_anchor("gpu-1/3", NODE, SETTINGS, "tarragon:1")
    (container,) = body["spec"]["containers"]

    assert body["metadata"]["name"] == "tarragon-gpu-gpu-1-3"
    assert body["metadata"]["annotations"] == {"tarragon.dev/vgpu": "3"}
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "node-uid", "controller": True}
    ]
    assert body["spec"]["nodeName"] == "gpu-1"
    assert body["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert body["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert container["image"] == "tarragon:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["resources"]["limits"] == container["resources"]["requests"]


def test_an_anchor_keeps_to_the_restricted_pod_security_standard() -> None:
    """As the namespace of the operator demands."""
    spec = build_anchor("gpu-1/3", NODE, SETTINGS, "tarragon:1")["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not spec["automountServiceAccountToken"]
    assert not {"volumes", "hostNetwork", "hostPID", "hostIPC"} & spec.keys()


def test_another_image_may_hold_gpus() -> None:
    settings = AnchorSettings(namespace="s", image="busybox")

    assert build_anchor("gpu-1/3", NODE, settings, "tarragon:1")["spec"]["containers"][0]["image"] == "busybox"


@pytest.mark.parametrize(
    ("namespace", "labels", "annotations"),
    [
        ("default", {"tarragon.dev/gpu-anchor": "true"}, {"tarragon.dev/vgpu": "3"}),
        ("s", {}, {"tarragon.dev/vgpu": "3"}),
        ("s", {"tarragon.dev/gpu-anchor": "true"}, {"tarragon.dev/vgpu": "x"}),
    ],
)
def test_no_other_pod_is_an_anchor(namespace: str, labels: dict[str, str], annotations: dict[str, str]) -> None:
    metadata = ObjectMeta(namespace=namespace, labels=labels, annotations=annotations)

    assert anchor_place(Pod(metadata=metadata, spec=PodSpec(node_name="n")), "s") is None
    assert anchor_place(Pod(metadata=metadata, spec=PodSpec(node_name="n")), "") is None


# ---------------------------------------------------------------------------------------------------------- its program


@pytest.fixture(params=["", "another/image"])
def program(request: pytest.FixtureRequest) -> list[str]:
    """That of the operator's own image, which has a Python, and that of another one, which has a shell."""
    settings = AnchorSettings(namespace="s", image=request.param)
    command: list[str] = build_anchor("gpu-1/3", NODE, settings, "i")["spec"]["containers"][0]["command"]
    return command


def start(program: list[str], folder: Path, smi: str | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start the program of an anchor, with an nvidia-smi that prints this, or that fails."""
    if smi is not None:
        tool = folder / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{smi}\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.Popen(
        program, env={"PATH": path, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("smi", "visible", "printed"),
    [
        (None, UUID, UUID),
        ("exit 9", UUID, UUID),
        (f"echo 'GPU 0: NVIDIA H200 (UUID: {UUID})'", "all", UUID),
        (
            f"echo 'GPU 0: A100 (UUID: GPU-1)'; echo '  MIG 1g.5gb  Device  0: (UUID: MIG-{UUID[4:]})'",
            "0",
            f"MIG-{UUID[4:]}",
        ),
        (f"echo 'GPU 0: NVIDIA H200 (UUID: {UUID})'", "", UUID),
    ],
)
def test_the_program_prints_the_gpu_and_ends_at_once_when_told(
    program: list[str], tmp_path: Path, smi: str | None, visible: str, printed: str
) -> None:
    with start(program, tmp_path, smi, NVIDIA_VISIBLE_DEVICES=visible) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f"{printed}\n"
        assert running.poll() is None

        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=5) == 0


def test_without_a_gpu_the_program_fails_and_says_why(program: list[str], tmp_path: Path) -> None:
    with start(program, tmp_path, "echo no devices were found; exit 6") as running:
        _, errors = running.communicate(timeout=5)

    assert (running.returncode, errors) == (1, "nvidia-smi -L fails: no devices were found\n")


# ------------------------------------------------------------------------------------------------------------ the words


def an_anchor(**status: Any) -> Pod:
    metadata = ObjectMeta(name="tarragon-gpu-n-0", namespace="s", creation_timestamp=START)
    return Pod(
        metadata=metadata,
        spec=PodSpec(node_name="n", containers=[Container(name="gpu")]),
        status=PodStatus(**status),
    )


def in_state(**state: Any) -> list[ContainerStatus]:
    return [ContainerStatus(name="gpu", state=ContainerState(**state))]


NAME = "vGPU 0 of node n has no GPU yet: its anchor pod s/tarragon-gpu-n-0"
RUNNING = in_state(running=ContainerStateRunning())
MISNAMED = in_state(waiting=ContainerStateWaiting(reason="InvalidImageName", message="x"))
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}


def test_a_wait_says_what_is_wrong_with_the_anchor() -> None:
    assert anchor_wait("n/0", None) == GpuWait(message="vGPU 0 of node n has no anchor pod yet")
    assert anchor_wait("n/0", an_anchor()) == GpuWait(
        message=f"{NAME} does not run: PodNotTaken: the kubelet of node n has not started the pod"
    )
    assert anchor_wait("n/0", an_anchor(phase="Running", container_statuses=RUNNING)) == GpuWait(
        message=f"{NAME} has not said which GPU it has"
    )
    assert anchor_wait("n/0", an_anchor(container_statuses=MISNAMED)) == GpuWait(
        message=f"{NAME} does not run: InvalidImageName: x", is_problem=True
    )
    assert anchor_wait("n/0", an_anchor(**REFUSED)) == GpuWait(
        message=f"{NAME} has failed: UnexpectedAdmissionError: Allocate failed", is_problem=True, is_rejected=True
    )


# -------------------------------------------------------------------------------------------------------------- the job


def admitted(**found: GpuWait | SharedGpu) -> World:
    """A job with two workers, on two vGPUs of a node; `first` and `second` are what is known of their GPUs."""
    job = manifest({"Worker": 2})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": dict(SHARE)}
    world = World(job)
    world.settle()
    know(world, **found)
    nodes = {Replica(WORKER, index): f"n/{index}" for index in (0, 1)}
    world.write_admission(Admission(queued_at=world.now, admitted_at=world.now, size={WORKER: 2}, nodes=nodes))
    return world


def know(world: World, *, first: GpuWait | SharedGpu, second: GpuWait | SharedGpu) -> None:
    gpus = {"n/0": first, "n/1": second}
    world.find_gpus = lambda demand: gpus[demand.place]


def blocked(world: World) -> str:
    found = world.status.condition("Blocked")
    return "" if found is None else f"{found.reason}: {found.message}"


STARTING = GpuWait(message="it is starting")


def test_a_replica_waits_for_its_gpu_and_the_others_do_not() -> None:
    world = admitted(first=CARD, second=STARTING)
    step = world.settle()
    assert list(world.pods) == ["dist-worker-0"]
    assert blocked(world) == ""
    assert step.requeue_at == START + dt.timedelta(seconds=30)

    know(world, first=CARD, second=CLIENT)
    world.settle()
    assert sorted(world.pods) == ["dist-worker-0", "dist-worker-1"]
    assert "CUDA_MPS_PIPE_DIRECTORY" in variables(world.pods["dist-worker-1"]["spec"]["containers"][0])


def test_a_wait_that_takes_too_long_is_an_obstacle_until_it_is_over() -> None:
    world = admitted(first=STARTING, second=STARTING)
    world.settle()
    world.pass_time(30)
    world.settle()
    assert blocked(world) == "GpuNotReady: worker-0 (and 1 more) waits: it is starting"
    assert world.status.obstacle is not None
    assert timeout_for(world.status.obstacle, world.settings) == world.settings.start_timeout

    know(world, first=CARD, second=CARD)
    world.settle()
    world.run()
    world.settle()
    assert blocked(world) == ""


def test_a_problem_is_an_obstacle_at_once_and_a_rejection_comes_first() -> None:
    problem = GpuWait(message="no image", is_problem=True)
    rejected = GpuWait(message="OutOfnvidia.com/gpu", is_problem=True, is_rejected=True)
    world = admitted(first=problem, second=STARTING)
    world.settle()
    assert blocked(world) == "GpuNotReady: worker-0 waits: no image"

    know(world, first=problem, second=rejected)
    world.settle()
    assert blocked(world) == "GpuNotFree: worker-1 (and 1 more) waits: OutOfnvidia.com/gpu"
    assert world.status.obstacle is not None
    assert timeout_for(world.status.obstacle, world.settings) == world.settings.creation_timeout


def test_a_running_job_that_loses_a_pod_reports_a_missing_gpu_at_once() -> None:
    world = admitted(first=CARD, second=CARD)
    world.settle()
    world.run()
    world.settle()
    world.pass_time(3600)
    world.vanish("dist-worker-1")
    know(world, first=CARD, second=STARTING)
    world.settle()

    assert blocked(world) == "GpuNotReady: worker-1 waits: it is starting"
    assert list(world.pods) == ["dist-worker-0"]


def a_node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels={f"tarragon.dev/{key}": value for key, value in labels.items()}))


def isolation(world: World) -> tuple[bool, str, str] | None:
    found = world.status.condition("GpuIsolation")
    return None if found is None else (found.is_true, found.reason, found.message)


NOT_ENFORCED = (
    "the limits of compute and memory are not enforced on node n: no MPS daemon runs there, so programs take turns, "
    "and each has to limit its memory itself"
)
ENFORCED = "MPS enforces the limits of compute and memory, for each process"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node("n"), (False, "NotEnforced", NOT_ENFORCED)),
        (a_node("n", mps="true"), (True, "MPS", ENFORCED)),
        (a_node("n", **{"gpu-sharing": "kubelet"}), None),
    ],
)
def test_a_job_says_whether_its_limits_are_enforced(node: Node, expected: tuple[bool, str, str] | None) -> None:
    world = admitted(first=CARD, second=CARD)
    ready = replace(node, status=NodeStatus(conditions=[PodCondition(type="Ready", status="True")]))
    world.nodes = {Key("", "n"): ready}
    world.settle()

    assert isolation(world) == expected
    world.withdraw()
    world.settle()
    assert isolation(world) is None


def test_a_job_with_whole_gpus_says_nothing_of_limits() -> None:
    world = World(manifest({"Worker": 2}))
    world.nodes = {Key("", "node-a"): a_node("node-a"), Key("", "node-b"): a_node("node-b")}
    world.settle()
    world.admit()
    world.settle()

    assert isolation(world) is None
