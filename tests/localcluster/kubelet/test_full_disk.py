"""A node whose disk is full. A folder in the place of a file to be written refuses the write, as a full disk does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tarragon.base.clock import FakeClock
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.pod.pod import FULL_DISK_PAUSE
from tests.localcluster.kubelet.test_kubelet import FOREVER, message_of, shim_of, wants_gpus
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import Json, World

MOUNTED = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
SCRATCH = {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}
FILLS = "head -c 3000000 /dev/zero > /scratch/file; echo full; sleep 1000"


def pod_folder(world: World, pod: Json) -> Path:
    return NodeFolder(world.node).pod(pod["metadata"]["uid"]).path


def no_checkpoints(world: World, pod: Json) -> None:
    (pod_folder(world, pod) / "pod.json.new").mkdir()


def no_facts(world: World, pod: Json) -> None:
    metadata = pod["metadata"]
    (world.node / "logs/default" / metadata["name"] / metadata["uid"] / "pod.json.new").mkdir()


async def test_a_pod_that_has_filled_the_disk_is_evicted_and_removed_all_the_same(world: World) -> None:
    kubelet = world.start_kubelet()
    pod = await world.run(FILLS, container=MOUNTED, volumes=[SCRATCH], restartPolicy="Never")
    await world.says("full")
    no_checkpoints(world, pod)
    no_facts(world, pod)

    await kubelet.eviction_manager.check()
    assert (await world.phase("Failed"))["status"]["reason"] == "Evicted"
    await world.delete()

    await world.vanished()
    await eventually(lambda: not list((world.node / "pods").iterdir()))


async def test_why_a_pod_was_ended_is_known_to_the_next_kubelet_once_the_disk_has_room(world: World) -> None:
    clock = FakeClock()
    kubelet = world.start_kubelet(clock)
    fills = f"trap '' TERM; head -c 3000000 /dev/zero > /scratch/file; {FOREVER}"
    pod = await world.run(fills, container=MOUNTED, volumes=[SCRATCH], restartPolicy="Never")
    await world.says("ready")
    no_checkpoints(world, pod)
    await kubelet.eviction_manager.check()
    await world.event("Failed")

    (pod_folder(world, pod) / "pod.json.new").rmdir()
    clock.advance(FULL_DISK_PAUSE)
    await eventually(lambda: b"Evicted" in (pod_folder(world, pod) / "pod.json").read_bytes())


async def test_a_probe_whose_result_cannot_be_written_does_not_keep_a_pod_from_its_end(world: World) -> None:
    world.start_kubelet()
    flag = world.folder / "flag"
    probe = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1}
    pod = await world.run(FOREVER, container={"readinessProbe": probe})
    await world.event("Unhealthy")
    no_checkpoints(world, pod)
    flag.touch()
    await world.until(lambda pod: pod["status"]["containerStatuses"][0]["ready"])

    await world.delete(grace=1)

    await world.vanished()


async def test_a_pod_ended_with_its_machine_counts_as_disrupted_though_its_end_cannot_be_written(world: World) -> None:
    world.start_kubelet()
    pod = await world.run("echo ready; exec sleep 1000", restartPolicy="OnFailure")
    await world.says("ready")
    no_checkpoints(world, pod)
    no_facts(world, pod)

    os.kill(shim_of(world, pod), signal.SIGTERM)

    assert (await world.phase("Failed"))["status"]["reason"] == "Terminated"


async def test_a_program_that_hung_and_cannot_be_started_again_has_not_succeeded(world: World) -> None:
    world.start_kubelet()
    failing = world.folder / "failing"
    probe = {"exec": {"command": ["test", "!", "-e", str(failing)]}, "failureThreshold": 1, "periodSeconds": 1}
    pod = await world.run(
        f"trap 'exit 0' TERM; {FOREVER}", container={"livenessProbe": probe}, restartPolicy="OnFailure"
    )
    await world.says("ready")
    (pod_folder(world, pod) / "runs/main/1").touch()  # no folder can be made there; the attempt clears it away
    failing.touch()

    await world.waiting("CreateContainerError")

    await world.until(lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)


async def test_a_gpu_is_held_by_its_pod_even_while_the_next_kubelet_cannot_write(world: World) -> None:
    world.start_kubelet()
    script = f"echo $CUDA_VISIBLE_DEVICES; {FOREVER}"
    held = await world.run(script, "held", container=wants_gpus(1))
    await world.says("ready", "held")
    await world.stop_kubelet()
    (NodeFolder(world.node).hosts / f".{held['metadata']['uid']}").mkdir()
    await world.run(script, "new", container=wants_gpus(1))

    world.start_kubelet()
    await world.says("ready", "new")

    assert [(await world.log(name)).split()[0] for name in ("held", "new")] == ["GPU-a", "GPU-b"]


async def test_a_pod_whose_admission_cannot_be_written_has_its_gpu_once_it_can(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    await world.run(f"trap '' TERM; {FOREVER}", "ending", container=wants_gpus(2))
    await world.says("ready", "ending")
    await world.delete("ending", grace=0)
    pod = await world.run("echo $CUDA_VISIBLE_DEVICES", "waits", container=wants_gpus(1), restartPolicy="Never")
    await eventually((pod_folder(world, pod) / "pod.json").exists)
    no_checkpoints(world, pod)
    await world.event("Failed")

    (pod_folder(world, pod) / "pod.json.new").rmdir()
    clock.advance(FULL_DISK_PAUSE)
    await world.phase("Succeeded", "waits")

    assert await world.log("waits") == "GPU-a\n"


async def test_an_interrupted_removal_of_an_old_run_does_not_keep_the_next_from_starting(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    pod = await world.run("exit 1", restartPolicy="OnFailure")
    await world.waiting("CrashLoopBackOff")
    (pod_folder(world, pod) / "runs/main/.removed-0/x").mkdir(parents=True)

    clock.advance(10)

    await world.until(lambda pod: "back-off 20s" in message_of(pod))
