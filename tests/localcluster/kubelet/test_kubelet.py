"""Pods on a node, with the kubelet, the in-process API and real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.client.errors import BadRequest
from tarragon.kube.core import SERVICES
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.kubelet.kubelet import Kubelet, end_all_containers
from tarragon.localcluster.kubelet.network.ports import allocated_ports
from tarragon.localcluster.kubelet.pod.logs import read
from tarragon.localcluster.kubelet.pod.stored_logs import find_logs
from tarragon.localcluster.kubelet.shim.shim_client import state_of
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import ANY_POD, Json, World, state, terminated

FOREVER = "echo ready; while :; do sleep 0.05; done"
STUBBORN = f"trap '' TERM; {FOREVER}"
POLITE = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"


def message_of(pod: Json) -> str:
    return str(state(pod).get("waiting", {}).get("message", ""))


def has_restarted(pod: Json) -> bool:
    return bool(pod["status"]["containerStatuses"][0]["restartCount"])


def shim_of(world: World, pod: Json, container: str = "main", number: int = 0) -> int:
    run_state = state_of(world.node / "pods" / pod["metadata"]["uid"] / "runs" / container / str(number))
    assert run_state
    assert run_state.shim
    return run_state.shim.pid


def main_of(world: World, pod: Json, container: str = "main", number: int = 0) -> int:
    run_state = state_of(world.node / "pods" / pod["metadata"]["uid"] / "runs" / container / str(number))
    assert run_state
    assert run_state.main
    return run_state.main.pid


# Running


async def test_a_pod_runs_to_its_end(world: World) -> None:
    world.start_kubelet()
    await world.run("echo hello; exit 3", restartPolicy="Never")

    pod = await world.phase("Failed")

    assert terminated(pod)["exitCode"] == 3
    assert terminated(pod)["reason"] == "Error"
    assert await world.log() == "hello\n"
    assert world.processes() == set()


async def test_events_and_status_of_a_pod_are_those_of_a_kubelet(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER)

    pod = await world.phase("Running")

    status = pod["status"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert (status["podIP"], status["hostIP"]) == ("127.0.0.1", "127.0.0.1")
    assert status["containerStatuses"][0]["containerID"].startswith("tarragon://")
    events = dict(await world.events())
    assert events["Created"] == "Created container: main"
    assert events["Started"] == "Started container main"
    assert events["Pulled"].startswith('Container image "example/train:1" already present on machine: it maps to /')


async def test_all_containers_of_a_pod_run_in_parallel(world: World) -> None:
    world.start_kubelet()
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.01; done"
    one, two = world.folder / "one", world.folder / "two"
    await world.create(
        "p",
        container_json(name="a", command=["sh", "-c", meet.format(one, two)]),
        container_json(name="b", command=["sh", "-c", meet.format(two, one)]),
        restartPolicy="Never",
    )

    await world.phase("Succeeded")


async def test_init_containers_run_one_by_one_before_the_main_containers(world: World) -> None:
    world.start_kubelet()
    order = world.folder / "order"
    say = [container_json(name=f"i{n}", command=["sh", "-c", f"echo {n} >> {order}"]) for n in (1, 2, 3)]

    await world.run(f"echo main >> {order}", restartPolicy="Never", initContainers=say)
    pod = await world.phase("Succeeded")

    assert order.read_text().split() == ["1", "2", "3", "main"]
    assert [each["ready"] for each in pod["status"]["initContainerStatuses"]] == [True, True, True]


async def test_a_failed_init_container_fails_a_pod_that_never_restarts(world: World) -> None:
    world.start_kubelet()

    await world.run("echo no", restartPolicy="Never", initContainers=[container_json(name="i", command=["false"])])
    pod = await world.phase("Failed")

    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert state(pod) == {"waiting": {"reason": "PodInitializing"}}


async def test_a_sidecar_runs_beside_the_main_containers_and_ends_with_them(world: World) -> None:
    world.start_kubelet()
    up = world.folder / "up"
    sidecar = container_json(name="side", command=["sh", "-c", f"touch {up}; {FOREVER}"], restartPolicy="Always")

    await world.run(f"until [ -e {up} ]; do sleep 0.01; done", restartPolicy="Never", initContainers=[sidecar])

    await world.phase("Succeeded")
    assert world.processes() == set()


# Failing


async def test_a_missing_command_fails_as_with_a_container_runtime(world: World) -> None:
    world.start_kubelet()
    await world.create("p", container_json(command=["nope"]), restartPolicy="Never")

    pod = await world.phase("Failed")

    words = 'exec: "nope": executable file not found in $PATH'
    assert terminated(pod) == {
        "exitCode": 128,
        "reason": "StartError",
        "message": words,
        "startedAt": "1970-01-01T00:00:00Z",
        "finishedAt": terminated(pod)["finishedAt"],
        "containerID": terminated(pod)["containerID"],
    }
    assert ("Failed", f"Error: {words}") in await world.events()


async def test_the_exit_code_after_a_signal_is_128_plus_its_number(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER, restartPolicy="Never")
    await world.says("ready")

    os.kill(main_of(world, await world.get()), signal.SIGKILL)
    pod = await world.phase("Failed")

    assert (terminated(pod)["exitCode"], terminated(pod)["signal"]) == (137, 9)


async def test_a_container_whose_shim_is_killed_is_reported_as_lost(world: World) -> None:
    world.start_kubelet()
    await world.run(f"setsid sleep 1000 & {FOREVER}", restartPolicy="Never")
    await world.says("ready")

    os.kill(shim_of(world, await world.get()), signal.SIGKILL)
    pod = await world.phase("Failed")

    last = terminated(pod)
    assert (last["exitCode"], last["reason"]) == (137, "ContainerStatusUnknown")
    assert last["message"] == (
        "the process that supervised the container is gone and left no record of how the container ended"
    )
    assert world.processes() == set()


async def test_a_lost_container_is_restarted_by_the_restart_policy(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER)
    await world.says("ready")

    os.kill(shim_of(world, await world.get()), signal.SIGKILL)
    pod = await world.until(
        lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1 and "running" in state(pod)
    )

    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


async def test_the_first_restart_is_immediate_and_later_ones_back_off(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    await world.run("echo run; exit 1", restartPolicy="OnFailure")

    uid = (await world.get())["metadata"]["uid"]
    for restarts, pause in ((1, 10), (2, 20), (3, 40)):
        pod = await world.until(lambda pod, pause=pause: f"back-off {pause}s" in message_of(pod))  # type: ignore[misc]
        assert state(pod)["waiting"] == {
            "reason": "CrashLoopBackOff",
            "message": f"back-off {pause}s restarting failed container=main pod=p_default({uid})",
        }
        assert pod["status"]["containerStatuses"][0]["restartCount"] == restarts
        assert pod["status"]["phase"] == "Running"
        clock.advance(pause)

    assert ("BackOff", f"Back-off restarting failed container main in pod p_default({uid})") in await world.events()


async def test_a_back_off_survives_a_restart_of_the_kubelet(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    await world.run("exit 1", restartPolicy="OnFailure")
    await world.waiting("CrashLoopBackOff")
    clock.advance(10)
    await world.until(lambda pod: "back-off 20s" in message_of(pod))

    await world.stop_kubelet()
    world.start_kubelet(clock)
    clock.advance(20)

    await world.until(lambda pod: "back-off 40s" in message_of(pod))


async def test_only_the_logs_of_the_current_and_previous_run_are_kept(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    await world.run("echo $TARRAGON_CONTAINER_ID; exit 1", restartPolicy="OnFailure")
    await world.waiting("CrashLoopBackOff")
    first = await world.log()
    clock.advance(10)
    pod = await world.until(lambda pod: "back-off 20s" in message_of(pod))

    last = await world.log()

    assert first != last
    logs = world.node / "logs/default/p" / pod["metadata"]["uid"] / "main"
    assert sorted(path.name for path in logs.iterdir()) == ["1.log", "2.log"]


async def test_a_container_may_write_a_termination_message(world: World) -> None:
    world.start_kubelet()
    script = "echo lost the data > /dev/termination-log; exit 1"
    await world.run(script, restartPolicy="Never")

    assert terminated(await world.phase("Failed"))["message"] == "lost the data\n"


async def test_the_termination_message_of_a_failed_container_may_be_its_log(world: World) -> None:
    world.start_kubelet()
    fields = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await world.run("seq 1 100; exit 1", restartPolicy="Never", container=fields)

    message = terminated(await world.phase("Failed"))["message"]

    assert message == "".join(f"{number}\n" for number in range(21, 101))


async def test_an_array_does_not_displace_the_exception_from_the_termination_message(world: World) -> None:
    world.start_kubelet()
    fields = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    script = 'echo ValueError: of; for row in $(seq 1 900); do echo "[$row.0],"; done; exit 1'
    await world.run(script, restartPolicy="Never", container=fields)

    message = terminated(await world.phase("Failed"))["message"]

    assert message == "ValueError: of\n[1.0],\n[2.0],\n… 898 more rows of numbers\n"


async def test_a_pod_is_ended_after_its_active_deadline(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    await world.run(FOREVER, activeDeadlineSeconds=60)
    await world.says("ready")

    clock.advance(60)
    pod = await world.phase("Failed")

    assert (pod["status"]["reason"], terminated(pod)["exitCode"]) == ("DeadlineExceeded", 143)


# Containers that cannot start


async def test_a_container_starts_once_its_missing_config_map_appears(world: World) -> None:
    clock = FakeClock()
    world.start_kubelet(clock)
    source = [{"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "lr"}}}]
    await world.run("echo lr is $LR", restartPolicy="Never", container={"env": source})
    assert await world.waiting("CreateContainerConfigError") == 'configmap "settings" not found'

    await world.config_map("settings", lr="0.1")
    clock.advance(1)
    await world.phase("Succeeded")

    assert await world.log() == "lr is 0.1\n"
    assert ("Failed", 'Error: configmap "settings" not found') in await world.events()


async def test_a_volume_that_cannot_be_mounted_is_reported_in_an_event(world: World) -> None:
    world.start_kubelet(FakeClock())
    await world.run("true", volumes=[{"name": "data", "configMap": {"name": "none"}}])

    words = 'MountVolume.SetUp failed for volume "data" : configmap "none" not found'
    pod = await world.until(lambda pod: state(pod).get("waiting", {}).get("message"))

    assert state(pod)["waiting"] == {"reason": "ContainerCreating", "message": words}
    assert ("FailedMount", words) in await world.events()


async def test_a_container_without_a_known_command_waits_with_a_remedy(world: World) -> None:
    world.start_kubelet(FakeClock())
    await world.create("p", {"name": "main", "image": "acme/x:1"})

    message = await world.waiting("CreateContainerConfigError")

    assert "the entrypoint of the image acme/x:1 is not known on this machine" in message
    assert "{entrypoint: [python, /app/main.py]}" in message


async def test_a_corrected_images_yaml_takes_effect_without_a_restart(world: World) -> None:
    clock = FakeClock()
    images = world.folder / "images.yaml"
    images.write_text("acme/*: {folder: /no/such/environment}")
    world.start_kubelet(clock, images=images)
    await world.create("p", {"name": "main", "image": "acme/x:1"}, restartPolicy="Never")
    assert "/no/such/environment, which does not exist" in await world.waiting("ErrImageNeverPull")

    images.write_text(f"acme/*: {{folder: {world.folder}, entrypoint: [echo, from the image]}}")
    clock.advance(1)
    await world.phase("Succeeded")

    assert await world.log() == "from the image\n"


async def test_a_missing_working_directory_is_reported_with_a_remedy(world: World) -> None:
    world.start_kubelet(FakeClock())
    await world.run("true", container={"workingDir": "/no/such/folder"})

    message = await world.waiting("CreateContainerConfigError")

    assert message.startswith("the working directory /no/such/folder does not exist on this machine")


# Working directories and paths


async def test_the_default_working_directory_is_the_folder_of_the_annotation(world: World) -> None:
    world.start_kubelet()
    await world.run("pwd", restartPolicy="Never", metadata={"annotations": {"tarragon.dev/workdir": str(world.folder)}})

    await world.phase("Succeeded")

    assert await world.log() == f"{world.folder}\n"


async def test_mount_paths_are_translated_in_commands_arguments_variables_and_the_working_directory(
    world: World,
) -> None:
    world.start_kubelet()
    await world.config_map("code", **{"train.py": "import sys, os; print(sys.argv[1], os.environ['OUT'], os.getcwd())"})
    fields = {
        "command": ["python", "/opt/train/train.py"],
        "args": ["--data=/data/in.csv"],
        "env": [{"name": "OUT", "value": "/data/out"}],
        "workingDir": "/data",
        "volumeMounts": [{"name": "code", "mountPath": "/opt/train"}, {"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "code", "configMap": {"name": "code"}}, {"name": "data", "emptyDir": {}}]

    await world.create("p", container_json(**fields), restartPolicy="Never", volumes=volumes)
    pod = await world.phase("Succeeded")

    data = world.node / "pods" / pod["metadata"]["uid"] / "volumes/data"
    assert await world.log() == f"--data={data}/in.csv {data}/out {data}\n"


async def test_pods_of_daemon_sets_are_not_started(world: World) -> None:
    world.start_kubelet()
    proxy = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "kube-proxy", "uid": "1", "controller": True}
    await world.run("echo no", metadata={"ownerReferences": [proxy]})

    message = await world.waiting("CreateContainerConfigError")

    assert "such as kube-proxy, are not started on a process node" in message


async def test_claims_and_images_map_to_folders_that_the_user_gave(world: World) -> None:
    world.start_kubelet()
    (world.folder / "bin").mkdir()
    greet = world.folder / "bin/greet"
    greet.write_text("#!/bin/sh\necho hello from $1\n")
    greet.chmod(0o755)
    (world.folder / "mine").mkdir()
    annotations = {
        "tarragon.dev/volumes": json.dumps({"data": str(world.folder / "mine")}),
        "tarragon.dev/environments": json.dumps({"example/train": str(world.folder)}),
    }
    mounts = [{"name": "v", "mountPath": "/data"}]
    claim = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]

    body = container_json(command=["greet", "/data"], volumeMounts=mounts)
    await world.create("p", body, restartPolicy="Never", volumes=claim, metadata={"annotations": annotations})
    await world.phase("Succeeded")

    assert await world.log() == f"hello from {world.folder}/mine\n"


SERVER = """
import http.server, json, os
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
host, port = cluster["ps"][0].split(":")
print("listening on", host, port, flush=True)
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello worker")
http.server.HTTPServer((host, int(port)), Hello).serve_forever()
"""
CLIENT = """
import json, os, time, urllib.error, urllib.request
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
for attempt in range(200):
    try:
        print(urllib.request.urlopen("http://" + cluster["ps"][0]).read().decode(), flush=True)
        break
    except urllib.error.URLError:
        time.sleep(0.05)
"""


async def test_two_pods_find_each_other_by_the_names_of_their_services(world: World) -> None:
    """One pod uses the full name, the other the short name of the same Service."""
    world.start_kubelet()
    ports = {"ports": [{"port": 2222}], "clusterIP": "None", "selector": {"x": "y"}}
    await world.cluster.create(SERVICES, {"metadata": {"name": "job-ps-0", "namespace": "default"}, "spec": ports})
    full = {"cluster": {"ps": ["job-ps-0.default.svc:2222"]}, "task": {"type": "ps", "index": 0}}
    short = {"cluster": {"ps": ["job-ps-0:2222"]}, "task": {"type": "worker", "index": 0}}

    def replica(script: str, config: Json) -> Json:
        return container_json(
            command=["python", "-c", script], env=[{"name": "TF_CONFIG", "value": json.dumps(config)}]
        )

    await world.create("ps", replica(SERVER, full), restartPolicy="Never")
    await world.create("worker", replica(CLIENT, short), restartPolicy="Never")
    await world.phase("Succeeded", "worker")

    assert await world.log("worker") == "hello worker\n"
    ((address, port),) = allocated_ports(world.folder / "node").items()
    assert (address.name, address.port) == ("job-ps-0", 2222)
    assert (await world.log("ps")).startswith(f"listening on 127.0.0.1 {port}\n")


LISTEN = """
import os, socket
with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
    connection, _ = server.accept()
    connection.sendall(b"hello\\n")
    connection.close()
"""

CONNECT = """
import os, socket, sys, time
for attempt in range(200):
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        print(connection.makefile().read(), os.environ["URL"], flush=True)
        break
    except OSError:
        time.sleep(0.05)
"""


@pytest.mark.parametrize("host", ["job-master-0", "job-master-0.ring", "job-master-0.ring.default.svc"])
async def test_two_pods_find_each_other_by_a_host_and_a_port_in_two_variables(world: World, host: str) -> None:
    """The last part of the name is a Service; a headless one leads to every port of its pods."""
    world.start_kubelet()
    await service(world, "job-master-0", ports=[{"port": 29500}])
    await service(world, "ring")
    env = [
        {"name": "MASTER_ADDR", "value": host},
        {"name": "MASTER_PORT", "value": "29500"},
        {"name": "URL", "value": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"},
    ]
    words = ["$(MASTER_ADDR)", "$(MASTER_PORT)"]

    await world.create("master", container_json(command=["python", "-c", LISTEN], env=env), restartPolicy="Never")
    await world.create(
        "worker", container_json(command=["python", "-c", CONNECT, *words], env=env), restartPolicy="Never"
    )
    await world.phase("Succeeded", "worker")

    url = f"tcp://{host}:29500"
    ((_, port),) = allocated_ports(world.folder / "node").items()
    local = url if "." in host and "svc" not in host else f"tcp://127.0.0.1:{port}"
    assert await world.log("worker") == f"hello\n {local}\n"


async def service(world: World, name: str, **spec: object) -> None:
    fields = {"clusterIP": "None", "selector": {"x": "y"}, **spec}
    await world.cluster.create(SERVICES, {"metadata": {"name": name, "namespace": "default"}, "spec": fields})


async def test_a_number_of_slots_in_a_host_file_is_not_a_port(world: World) -> None:
    """MPICH and Intel MPI read `HOST:SLOTS`. Only a Service that has such a port tells the two apart."""
    world.start_kubelet()
    await service(world, "pi")
    await service(world, "web", ports=[{"port": 80}])
    slots = ["pi-0.pi.default.svc:4", "pi.default.svc:4", "web.default.svc:4", "x.unknown.default.svc:4"]
    ports = ["web-0.web.default.svc:80", "unknown.default.svc:80"]
    env = [{"name": "HOSTS", "value": " ".join([*slots, *ports])}]

    await world.run("echo $HOSTS", restartPolicy="Never", container={"env": env})
    await world.phase("Succeeded")

    printed = (await world.log()).split()
    assert printed[:4] == slots
    assert all(address.startswith("127.0.0.1:2") for address in printed[4:])


class CountedReads(InProcessCluster):
    """Counts how often each Service is read."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.services: Counter[str] = Counter()

    async def get(self, resource: Resource[Any], key: Key) -> Any:
        if resource.plural == SERVICES.plural:
            self.services[key.name] += 1
        return await super().get(resource, key)


async def test_a_service_is_read_once_for_all_the_hosts_behind_it(world: World) -> None:
    cluster = CountedReads(world.api)
    world.start_kubelet(cluster=cluster)
    await service(world, "pi")
    hosts = [f"pi-worker-{index}.pi.default.svc:4" for index in range(100)]
    env = [{"name": "HOSTS", "value": " ".join(hosts)}]

    await world.run("echo $HOSTS", restartPolicy="Never", container={"env": env})
    await world.phase("Succeeded")

    assert (await world.log()).split() == hosts
    assert cluster.services["pi"] == 1


async def test_only_the_files_that_a_pod_mounts_are_searched_for_addresses(world: World) -> None:
    cluster = CountedReads(world.api)
    world.start_kubelet(cluster=cluster)
    await world.config_map("pi-config", hostfile="pi-worker-0:4", script="exec agent")
    item = {"key": "script", "path": "script"}
    volume = {"name": "config", "configMap": {"name": "pi-config", "items": [item]}}
    mount = {"name": "config", "mountPath": "/etc/mpi"}

    await world.run("true", restartPolicy="Never", volumes=[volume], container={"volumeMounts": [mount]})
    await world.phase("Succeeded")

    assert not cluster.services


async def test_ports_are_released_when_neither_pods_nor_services_need_them(world: World) -> None:
    world.start_kubelet()
    env = [{"name": "PEER", "value": "other.default.svc:2222"}]
    await world.run("echo $PEER", restartPolicy="Never", container={"env": env})
    await world.phase("Succeeded")
    assert re.fullmatch(r"127\.0\.0\.1:2\d{4}\n", await world.log())

    await world.delete()
    await world.vanished()

    await eventually(lambda: allocated_ports(world.folder / "node") == {})


# Resources and devices


async def test_a_pod_that_does_not_fit_is_rejected_as_by_a_kubelet(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER, "big", container={"resources": {"requests": {"memory": "6Gi"}}})
    await world.phase("Running", "big")

    await world.run("true", "more", container={"resources": {"requests": {"memory": "3Gi"}}})
    pod = await world.phase("Failed", "more")

    assert pod["status"]["reason"] == "OutOfmemory"
    assert pod["status"]["message"] == (
        "Pod was rejected: Node didn't have enough resource: memory, requested: 3Gi, used: 6Gi, capacity: 8Gi"
    )
    assert "containerID" not in pod["status"]["containerStatuses"][0]


async def test_shared_cpus_may_be_overcommitted(world: World) -> None:
    world.start_kubelet()
    await world.run("true", restartPolicy="Never", container={"resources": {"requests": {"cpu": "20"}}})

    await world.phase("Succeeded")


async def test_the_resources_of_a_finished_pod_are_released(world: World) -> None:
    world.start_kubelet()
    for name in ("one", "two", "three"):
        await world.run("true", name, restartPolicy="Never", container={"resources": {"requests": {"memory": "6Gi"}}})
        await world.phase("Succeeded", name)


async def test_a_pod_waits_for_what_a_deleted_pod_still_holds(world: World) -> None:
    """Without a grace period, a pod vanishes from the API before its processes have ended."""
    world.start_kubelet()
    whole = {"resources": {"requests": {"memory": "6Gi"}}}
    await world.run(FOREVER, "one", container=whole)
    await world.phase("Running", "one")

    await world.delete("one", grace=0)
    await world.run("true", "two", restartPolicy="Never", container=whole)

    ended = await world.until(lambda pod: pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}, "two")
    assert ended["status"]["phase"] == "Succeeded"


async def test_a_pod_that_waits_for_what_another_still_holds_can_be_deleted(world: World) -> None:
    world.start_kubelet()
    whole = {"resources": {"requests": {"memory": "6Gi"}}}
    await world.run(STUBBORN, "one", container=whole, restartPolicy="Never", terminationGracePeriodSeconds=600)
    await world.says("ready", "one")
    await world.cluster.patch(ANY_POD, Key("default", "one"), {"status": {"phase": "Failed"}}, subresource="status")
    await world.event("Killing")
    two = await world.run("true", "two", container=whole)
    await eventually((world.node / "pods" / two["metadata"]["uid"] / "pod.json").exists)

    await world.delete("two")

    await world.vanished("two")


def wants_gpus(count: int) -> Json:
    return {"resources": {"limits": {"nvidia.com/gpu": count}}}


async def test_a_gpu_is_allocated_to_one_container_even_across_a_restart(world: World) -> None:
    world.start_kubelet()
    script = f"echo $CUDA_VISIBLE_DEVICES; {FOREVER}"
    await world.run(script, "one", container=wants_gpus(1))
    await world.says("ready", "one")
    await world.stop_kubelet()
    world.start_kubelet()
    await world.run(script, "two", container=wants_gpus(1))
    await world.says("ready", "two")

    await world.run("true", "three", container=wants_gpus(1))
    pod = await world.phase("Failed", "three")

    assert pod["status"]["reason"] == "OutOfnvidia.com/gpu"
    seen = [(await world.log(name)).split()[0] for name in ("one", "two")]
    assert sorted(seen) == ["GPU-a", "GPU-b"]


async def test_a_scheduler_may_choose_the_gpu(world: World) -> None:
    world.start_kubelet()
    fields = {"annotations": {"tarragon.dev/gpus": "GPU-b"}}
    await world.run("echo $CUDA_VISIBLE_DEVICES", restartPolicy="Never", container=wants_gpus(1), metadata=fields)

    await world.phase("Succeeded")

    assert await world.log() == "GPU-b\n"


async def test_the_node_reports_its_capacity_and_that_it_is_ready(world: World) -> None:
    world.start_kubelet(labels={"disk": "ssd"})
    await world.run("true", restartPolicy="Never")
    await world.phase("Succeeded")

    node = await world.node_object()

    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "20", "nvidia.com/gpu": "2"}
    assert node["status"]["conditions"][0]["type"] == "Ready"
    assert node["status"]["conditions"][0]["status"] == "True"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n"
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert node["metadata"]["labels"]["tarragon.dev/gpu-sharing"] == "kubelet"
    assert node["metadata"]["annotations"]["tarragon.dev/overcommit"] == "cpu,hostPorts"


# Deleting


async def test_a_deleted_pod_is_removed_when_its_containers_have_ended(world: World) -> None:
    world.start_kubelet()
    await world.run(POLITE)
    await world.says("ready")

    await world.delete(grace=30)
    pod = await world.phase("Failed")
    await world.vanished()

    assert terminated(pod)["exitCode"] == 7
    assert world.processes() == set()
    await eventually(lambda: not list((world.node / "pods").iterdir()))


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(world: World) -> None:
    world.start_kubelet()
    await world.run(f'setsid sh -c "{STUBBORN}" & {STUBBORN}')
    await world.says("ready")

    await world.delete(grace=1)
    pod = await world.phase("Failed")
    await world.vanished()

    assert terminated(pod)["exitCode"] == 137
    assert world.processes() == set()


async def test_a_second_delete_shortens_the_grace_period(world: World) -> None:
    world.start_kubelet()
    await world.run(STUBBORN)
    await world.says("ready")

    await world.delete(grace=1000)
    await world.delete(grace=1)

    await world.vanished()
    await eventually(lambda: world.processes() == set())


async def test_a_force_deleted_pod_leaves_no_process(world: World) -> None:
    world.start_kubelet()
    await world.run(STUBBORN)
    await world.says("ready")

    await world.delete(grace=0)

    await world.vanished()
    await eventually(lambda: world.processes() == set() and not list((world.node / "pods").iterdir()))


async def test_a_new_pod_waits_until_the_old_pod_of_its_name_has_ended(world: World) -> None:
    world.start_kubelet()
    lock = world.folder / "lock"
    script = f"mkdir {lock} || exit 9; echo ready; sleep 0.3; rmdir {lock}"
    await world.run(f"trap '' TERM; {script}", restartPolicy="Never")
    await world.says("ready")

    await world.delete(grace=0)
    await world.vanished()
    await world.run(script, restartPolicy="Never")

    await world.phase("Succeeded")


async def test_a_pod_that_has_not_started_yet_can_be_deleted(world: World) -> None:
    world.start_kubelet(FakeClock())
    await world.run("true", container={"envFrom": [{"configMapRef": {"name": "none"}}]})
    await world.waiting("CreateContainerConfigError")

    await world.delete()

    await world.vanished()


async def test_the_logs_of_a_deleted_pod_are_kept(world: World) -> None:
    world.start_kubelet()
    labels = {"job": "mnist"}
    await world.run("echo last words; exit 4", restartPolicy="Never", metadata={"labels": labels})
    await world.phase("Failed")
    await world.delete()
    await world.vanished()
    await eventually(lambda: not list((world.node / "pods").iterdir()))
    await world.stop_kubelet()

    (kept,) = find_logs(world.folder / "node", "default", "job=mnist")

    (run,) = kept.facts.runs
    assert (run.container, run.code, run.reason) == ("main", 4, "Error")
    assert kept.facts.removed > 0
    assert b"".join(read(kept.log(run))) == b"last words\n"


# Crashing


async def test_containers_outlive_the_kubelet_and_the_next_one_adopts_them(world: World) -> None:
    world.start_kubelet()
    await world.run(POLITE, restartPolicy="Never")
    await world.says("ready")

    await world.stop_kubelet()
    assert world.processes()
    world.start_kubelet()
    await world.delete(grace=30)
    pod = await world.phase("Failed")

    assert terminated(pod)["exitCode"] == 7
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_container_that_ended_without_a_kubelet_is_reported_by_the_next(world: World) -> None:
    world.start_kubelet()
    go = world.folder / "go"
    await world.run(f"echo ready; until [ -e {go} ]; do sleep 0.02; done; exit 5", restartPolicy="Never")
    await world.says("ready")
    await world.stop_kubelet()

    go.touch()
    await eventually(lambda: not world.processes())
    world.start_kubelet()

    assert terminated(await world.phase("Failed"))["exitCode"] == 5


async def test_a_pod_deleted_without_a_kubelet_is_cleaned_up_by_the_next(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER)
    await world.says("ready")
    await world.stop_kubelet()

    await world.delete(grace=0)
    world.start_kubelet()

    await eventually(lambda: not world.processes() and not list((world.node / "pods").iterdir()))


async def test_a_pod_recreated_without_a_kubelet_starts_when_the_old_pod_of_its_name_has_ended(world: World) -> None:
    pid = world.folder / "pid"
    world.start_kubelet()
    await world.run(f"echo $$$$ > {pid}; trap '' TERM; {FOREVER}")
    await world.says("ready")
    await world.stop_kubelet()
    await world.delete(grace=0)
    await world.run(f"! kill -0 $(cat {pid})", restartPolicy="Never")

    world.start_kubelet()
    ended = await world.until(lambda pod: pod.get("status", {}).get("phase") in {"Succeeded", "Failed"})

    assert ended["status"]["phase"] == "Succeeded"


async def test_a_run_that_was_recorded_but_not_started_is_not_counted(world: World) -> None:
    """The kubelet was killed after it wrote the spec and before it started the shim."""
    world.start_kubelet()
    await world.run("true", restartPolicy="Never", container={"envFrom": [{"configMapRef": {"name": "late"}}]})
    await world.waiting("CreateContainerConfigError")
    await world.stop_kubelet()
    pod = await world.get()
    folder = world.node / "pods" / pod["metadata"]["uid"] / "runs/main/0"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text('{"id": "x"}')
    await world.config_map("late", a="b")

    world.start_kubelet()
    pod = await world.phase("Succeeded")

    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_pods_whose_folder_was_removed_are_lost_and_not_run_again(world: World) -> None:
    world.start_kubelet()
    await world.run(f"date >> {world.folder}/starts; {FOREVER}", restartPolicy="Never")
    await world.says("ready")
    await world.run(f"date >> {world.folder}/starts", "done", restartPolicy="Never")
    await world.phase("Succeeded", "done")
    await world.stop_kubelet()

    shutil.rmtree(world.node / "pods")
    world.start_kubelet()
    pod = await world.phase("Failed")

    # The shim may have noticed the removed folder first and ended the container.
    assert terminated(pod)["reason"] in {"ContainerStatusUnknown", "Error"}
    assert state(await world.get("done"))["terminated"]["exitCode"] == 0
    await eventually(lambda: not world.processes())
    assert len((world.folder / "starts").read_text().splitlines()) == 2


async def test_a_second_kubelet_cannot_run_the_same_node(world: World) -> None:
    world.start_kubelet()
    await world.run("true", restartPolicy="Never")
    await world.phase("Succeeded")

    with pytest.raises(TarragonError, match="another kubelet already runs this node"):
        await Kubelet(world.cluster, world.settings(), SystemClock()).run()


DAEMON = """
import asyncio, sys
from pathlib import Path
from tarragon.base.clock import SystemClock
from tests.localcluster.kubelet.world import World

async def main():
    world = await World.make(Path(sys.argv[1]))
    world.start_kubelet()
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def have_begun(folder: Path, count: int) -> bool:
    return len(list(folder.glob("runs-*"))) >= count


async def test_random_kills_of_the_whole_cluster_neither_lose_nor_repeat_a_run(tmp_path: Path) -> None:
    """API and kubelet run in one process, which is killed repeatedly while ten pods run; each runs exactly once."""
    folder = tmp_path
    world = await World.make(folder)
    for number in range(10):
        script = f"echo begin >> {folder}/runs-{number}; sleep 0.{number}; echo end >> {folder}/runs-{number}"
        looked_after = {
            "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
            "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 60},
        }
        await world.run(script, f"p{number}", restartPolicy="OnFailure", container=looked_after if number % 2 else {})
    await world.api.close()

    for moment in range(8):
        daemon = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DAEMON, str(folder), stdout=asyncio.subprocess.PIPE
        )
        assert daemon.stdout
        await daemon.stdout.readline()
        await eventually(partial(have_begun, folder, moment))
        daemon.kill()
        await daemon.wait()

    world = await World.make(folder)
    try:
        world.start_kubelet()
        for number in range(10):
            await world.phase("Succeeded", f"p{number}")
            assert (folder / f"runs-{number}").read_text() == "begin\nend\n"
        assert world.processes() == set()
    finally:
        await world.close()


# Shutting down a node


async def test_a_node_shutdown_ends_the_containers_and_reports_why(world: World) -> None:
    kubelet = world.start_kubelet()
    await world.run(POLITE)
    await world.says("ready")

    await kubelet.end_all()

    pod = await world.get()
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
    assert terminated(pod)["exitCode"] == 7
    assert world.processes() == set()


def told_to_end(world: World, *pods: Json) -> None:
    """Send SIGTERM to all processes in any order, as init does when a machine shuts down."""
    pids = [pid for pod in pods for pid in (main_of(world, pod), shim_of(world, pod))]
    random.Random().shuffle(pids)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a shim that was signalled first has signalled its program
            os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_pod_ended_by_a_machine_shutdown_counts_as_disrupted(
    world: World,
    is_there: bool,  # noqa: FBT001 - a table
) -> None:
    world.start_kubelet()
    scripts = {"sleeper": "echo ready; exec sleep 1000", "polite": POLITE, "fine": POLITE.replace("7", "0")}
    for name, script in scripts.items():
        await world.run(script, name, restartPolicy="OnFailure")
        await world.says("ready", name)
    pods = [await world.get(name) for name in scripts]
    if not is_there:
        await world.stop_kubelet()

    told_to_end(world, *pods)
    if not is_there:
        await eventually(lambda: not world.processes())
        world.start_kubelet()

    for name, code in (("sleeper", 143), ("polite", 7), ("fine", 0)):
        pod = await world.phase("Failed", name)
        assert (pod["status"]["reason"], terminated(pod)["exitCode"]) == ("Terminated", code)
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        condition = {each["type"]: each for each in pod["status"]["conditions"]}["DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "TerminationByKubelet")


async def test_a_killed_program_has_failed(world: World) -> None:
    world.start_kubelet()
    await world.run("echo ready; exec sleep 1000", restartPolicy="Never")
    await world.says("ready")

    os.kill(main_of(world, await world.get()), signal.SIGTERM)
    pod = await world.phase("Failed")

    assert (pod["status"].get("reason"), terminated(pod)["exitCode"]) == (None, 143)


async def test_after_a_machine_crash_a_pod_is_replaced_by_its_controller_or_restarted(world: World) -> None:
    world.start_kubelet()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "j", "uid": "1", "controller": True}
    await world.run(STUBBORN, "owned", restartPolicy="OnFailure", metadata={"ownerReferences": [owner]})
    await world.run(STUBBORN, "bare", restartPolicy="OnFailure")
    for name in ("owned", "bare"):
        await world.says("ready", name)
    pods = [await world.get(name) for name in ("owned", "bare")]
    await world.stop_kubelet()

    for pod in pods:
        os.kill(shim_of(world, pod), signal.SIGKILL)
    await eventually(lambda: not world.processes())
    world.start_kubelet()

    owned = await world.phase("Failed", "owned")
    assert (owned["status"]["reason"], terminated(owned)["reason"]) == ("Terminated", "ContainerStatusUnknown")
    await world.until(lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1, "bare")


async def test_a_container_lost_by_its_supervisor_alone_is_restarted_also_after_a_restart_of_the_kubelet(
    world: World,
) -> None:
    world.start_kubelet()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "j", "uid": "1", "controller": True}
    first = world.folder / "first"
    script = f"[ -e {first} ] || {{ touch {first}; exit 1; }}; {FOREVER}"
    await world.run(script, restartPolicy="OnFailure", metadata={"ownerReferences": [owner]})
    pod = await world.until(lambda pod: "running" in state(pod) and has_restarted(pod))
    await world.stop_kubelet()
    kubelet = world.start_kubelet()
    await eventually(lambda: any(kubelet.live_runs().values()))

    os.kill(shim_of(world, pod, number=1), signal.SIGKILL)

    await world.waiting("CrashLoopBackOff")


async def test_the_containers_of_a_stopped_kubelet_can_be_ended(world: World) -> None:
    world.start_kubelet()
    await world.run(POLITE, "polite")
    await world.run(STUBBORN, "stubborn", terminationGracePeriodSeconds=1)
    await world.says("ready", "polite")
    await world.says("ready", "stubborn")
    await world.stop_kubelet()

    await end_all_containers(world.node, SystemClock())

    assert world.processes() == set()
    assert "bye\n" in await world.log("polite")


async def test_ending_the_containers_of_a_node_without_a_folder_does_nothing(tmp_path: Path) -> None:
    await end_all_containers(tmp_path / "none", SystemClock())


# Reading logs


async def test_a_followed_log_continues_until_the_container_ends(world: World) -> None:
    world.start_kubelet()
    go = world.folder / "go"
    await world.run(f"echo one; until [ -e {go} ]; do sleep 0.02; done; echo two", restartPolicy="Never")
    await world.says("one")

    following = asyncio.create_task(world.log(follow=True))
    go.touch()

    assert await following == "one\ntwo\n"


async def test_the_log_of_a_container_that_has_not_started_is_an_error(world: World) -> None:
    world.start_kubelet(FakeClock())
    await world.run("true", container={"envFrom": [{"configMapRef": {"name": "none"}}]})
    await world.waiting("CreateContainerConfigError")

    with pytest.raises(BadRequest, match="is waiting to start: CreateContainerConfigError"):
        await world.log()
