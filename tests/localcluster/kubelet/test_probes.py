"""Probes and hooks of real processes, and the pod conditions, restarts and events that follow."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tarragon.kube.core import SERVICES
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.pod.checkpoint import PodCheckpoint, RunChange
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import ANY_POD, Json, World, state

FOREVER = "while :; do sleep 0.05; done"
SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers.get("X-Who"), self.headers["User-Agent"], flush=True)
        where = {"/moved": "/fine", "/away": "http://elsewhere.invalid/"}.get(self.path)
        self.send_response(302 if where else 200 if self.path == "/fine" else 500)
        if where:
            self.send_header("Location", where)
        self.end_headers()
    def log_message(self, *_): pass
port = int(sys.argv[1].rpartition(":")[2])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
FAST = {"periodSeconds": 1, "timeoutSeconds": 60}
"""A short period and a long timeout, as a busy machine may take longer than the default of one second."""


def condition(pod: Json, kind: str) -> str:
    found = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
    return str(found.get(kind, ""))


def is_ready(pod: Json) -> bool:
    return condition(pod, "Ready") == "True"


def first_state(pod: Json) -> Json:
    """The state of the first init container."""
    statuses = pod["status"].get("initContainerStatuses") or [{"state": {}}]
    result: Json = statuses[0]["state"]
    return result


def restarts(pod: Json) -> int:
    statuses = pod["status"].get("containerStatuses") or [{"restartCount": 0}]
    return int(statuses[0]["restartCount"])


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is bound here, so that no other program gets it; a server with SO_REUSEADDR can bind it again."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def server(world: World, port: int | str, **fields: Any) -> Json:
    program = world.folder / "server.py"
    program.write_text(SERVER)
    return container_json(command=[sys.executable, str(program), str(port)], **fields)


async def test_a_pod_is_ready_when_its_program_responds(world: World, free_port: int) -> None:
    world.start_kubelet()
    gate = world.folder / "gate"
    probe = {"httpGet": {"path": "/fine", "port": "web", "httpHeaders": [{"name": "X-Who", "value": "me"}]}, **FAST}
    body = server(world, free_port, readinessProbe=probe, ports=[{"name": "web", "containerPort": free_port}])
    body["command"] = ["sh", "-c", f'until [ -e {gate} ]; do sleep 0.01; done; exec "$@"', "sh", *body["command"]]
    await world.create("p", body)

    pod = await world.phase("Running")
    assert (is_ready(pod), condition(pod, "ContainersReady")) == (False, "False")
    assert pod["status"]["containerStatuses"][0]["started"] is True
    words = f'Get "http://127.0.0.1:{free_port}/fine": dial tcp 127.0.0.1:{free_port}: connect: connection refused'
    assert await world.event("Unhealthy", words) == f"Readiness probe failed: {words}"
    gate.touch()
    pod = await world.until(is_ready)

    assert pod["status"]["containerStatuses"][0]["ready"] is True
    assert (await world.log()).split("\n")[0] == "/fine me kube-probe/1.37"


@pytest.mark.parametrize(
    ("path", "ready", "event"),
    [
        ("/moved", True, None),
        ("/away", True, ("ProbeWarning", "Readiness probe warning: Probe terminated redirects, Response body: ")),
        ("/ill", False, ("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500")),
    ],
)
async def test_responses_count_as_with_a_kubelet(
    world: World,
    free_port: int,
    path: str,
    ready: bool,  # noqa: FBT001 - a table
    event: tuple[str, str] | None,
) -> None:
    world.start_kubelet()
    probe = {"httpGet": {"path": path, "port": free_port}, **FAST}
    await world.create("p", server(world, free_port, readinessProbe=probe))

    if event:
        assert await world.event(event[0], event[1].partition(":")[2]) == event[1]
    if ready:
        await world.until(is_ready)
    assert is_ready(await world.get()) is ready


async def test_a_probe_connects_to_the_translated_port_of_the_program(world: World) -> None:
    """Like a replica, the program listens on the address in its environment."""
    world.start_kubelet()
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    service["spec"]["ports"] = [{"port": 80, "targetPort": 2222}]  # type: ignore[index]
    await world.cluster.create(SERVICES, service)
    probe = {"tcpSocket": {"port": 2222}, **FAST}
    body = server(world, "web.default.svc:80", readinessProbe=probe)

    await world.create("p", body, metadata={"labels": {"app": "web"}})

    await world.until(is_ready)


async def test_a_command_in_the_container_can_be_a_probe(world: World) -> None:
    world.start_kubelet()
    await world.config_map("code", check="test -e $FLAG || { echo not there; exit 1; }")
    probe = {"exec": {"command": ["sh", "/code/check"]}, **FAST}
    flag = world.folder / "flag"
    fields = {
        "readinessProbe": probe,
        "env": [{"name": "FLAG", "value": str(flag)}],
        "volumeMounts": [{"name": "code", "mountPath": "/code"}],
    }
    await world.run(FOREVER, container=fields, volumes=[{"name": "code", "configMap": {"name": "code"}}])
    assert await world.event("Unhealthy") == "Readiness probe failed: not there\n"
    assert not is_ready(await world.get())

    flag.touch()

    await world.until(is_ready)


async def test_a_container_that_fails_its_liveness_probe_is_restarted(world: World) -> None:
    world.start_kubelet()
    before, failing = world.folder / "before", world.folder / "failing"
    # The probe fails once, so that the second run succeeds from the start.
    heals = ["sh", "-c", f"[ ! -e {failing} ] || {{ rm {failing}; exit 1; }}"]
    probe = {"exec": {"command": heals}, "failureThreshold": 1, **FAST}
    script = f"[ -e {before} ] || {{ trap 'exit 0' TERM; touch {before} {failing}; }}; {FOREVER}"

    await world.run(script, container={"livenessProbe": probe}, restartPolicy="OnFailure")
    pod = await world.until(lambda pod: restarts(pod) == 1 and "running" in state(pod))

    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 0
    events = await world.events()
    assert ("Killing", "Container main failed liveness probe, will be restarted") in events
    assert ("Unhealthy", "Liveness probe failed: ") in events


async def test_a_failed_liveness_probe_ends_a_pod_that_never_restarts_with_its_own_grace(world: World) -> None:
    world.start_kubelet()
    probe = {"exec": {"command": ["false"]}, "failureThreshold": 1, "terminationGracePeriodSeconds": 1, **FAST}

    await world.run(f"trap '' TERM; {FOREVER}", container={"livenessProbe": probe}, restartPolicy="Never")
    pod = await world.phase("Failed")

    assert state(pod)["terminated"]["exitCode"] == 137
    assert ("Killing", "Container main failed liveness probe") in await world.events()


async def test_a_probe_command_that_times_out_is_killed_and_counts_as_a_failure(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER, container={"readinessProbe": {"exec": {"command": ["sleep", "1000"]}}})

    assert await world.event("Unhealthy") == (
        'Readiness probe failed: command timed out: "sleep 1000" timed out after 1s'
    )


async def test_the_next_container_waits_for_a_sidecars_startup_probe(world: World) -> None:
    world.start_kubelet()
    up = world.folder / "up"
    probe = {"exec": {"command": ["test", "-e", str(up)]}, **FAST}
    sidecar = container_json(name="side", command=["sh", "-c", FOREVER], restartPolicy="Always", startupProbe=probe)
    await world.run("echo main", initContainers=[sidecar], restartPolicy="Never")

    pod = await world.until(
        lambda pod: "running" in (pod["status"].get("initContainerStatuses") or [{"state": {}}])[0]["state"]
    )
    status = pod["status"]["initContainerStatuses"][0]
    assert (status["started"], status["ready"], condition(pod, "Initialized")) == (False, False, "False")
    up.touch()
    await world.phase("Succeeded")


async def test_a_readiness_gate_waits_for_its_condition(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER, readinessGates=[{"conditionType": "acme.dev/open"}])
    pod = await world.until(lambda pod: condition(pod, "ContainersReady") == "True")
    ready = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    assert ready["message"] == 'corresponding condition of pod readiness gate "acme.dev/open" does not exist.'

    gate = {"status": {"conditions": [{"type": "acme.dev/open", "status": "True"}]}}
    await world.cluster.patch(ANY_POD, Key("default", "p"), gate, subresource="status")

    await world.until(is_ready)


# Hooks


async def test_a_post_start_hook_delays_running_and_the_next_container(world: World) -> None:
    world.start_kubelet()
    gate = world.folder / "gate"
    hook = {"postStart": {"exec": {"command": ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.01; done"]}}}
    first = container_json(name="a", command=["sh", "-c", "echo up; sleep 1000"], lifecycle=hook)
    await world.create("p", first, container_json(name="b", command=["sh", "-c", "sleep 1000"]))

    pod = await world.until(lambda pod: pod.get("status", {}).get("containerStatuses"))
    assert [state(pod, number) for number in (0, 1)] == [{"waiting": {"reason": "ContainerCreating"}}] * 2
    gate.touch()

    await world.phase("Running")


async def test_a_container_whose_post_start_hook_fails_is_killed_and_restarted_by_policy(world: World) -> None:
    world.start_kubelet()
    hook = {"postStart": {"exec": {"command": ["false"]}}}

    await world.run(f"trap '' TERM; {FOREVER}", container={"lifecycle": hook}, restartPolicy="Never",
                    terminationGracePeriodSeconds=0)  # fmt: skip
    await world.phase("Failed")

    events = await world.events()
    assert ("FailedPostStartHook", "PostStartHook failed") in events
    assert ("Killing", "FailedPostStartHook") in events


async def test_a_pre_stop_hook_runs_before_sigterm(world: World) -> None:
    world.start_kubelet()
    order = world.folder / "order"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"echo hook >> {order}"]}}}
    script = f"trap 'echo term >> {order}; exit' TERM; echo ready; {FOREVER}"
    await world.run(script, container={"lifecycle": hook})
    await world.says("ready")

    await world.delete()
    await world.vanished()

    assert order.read_text().split() == ["hook", "term"]


async def test_a_hanging_pre_stop_hook_is_limited_by_the_grace_period(world: World) -> None:
    world.start_kubelet()
    hook = {"preStop": {"exec": {"command": ["sleep", "1000"]}}}
    await world.run(f"echo ready; {FOREVER}", container={"lifecycle": hook}, terminationGracePeriodSeconds=1)
    await world.says("ready")

    await world.delete()
    await world.vanished()

    assert ("FailedPreStopHook", "PreStopHook not completed in grace period") in await world.events()
    assert world.processes() == set()


async def test_a_failed_pre_stop_hook_is_reported_and_the_container_ends(world: World) -> None:
    world.start_kubelet()
    hook = {"preStop": {"httpGet": {"path": "/", "port": 1}}}
    await world.run(f"echo ready; {FOREVER}", container={"lifecycle": hook})
    await world.says("ready")

    await world.delete()
    await world.vanished()

    assert ("FailedPreStopHook", "PreStopHook failed") in await world.events()


async def test_a_forced_delete_runs_no_hook(world: World) -> None:
    world.start_kubelet()
    order = world.folder / "order"
    hook = {"preStop": {"exec": {"command": ["touch", str(order)]}}}
    await world.run(f"echo ready; {FOREVER}", container={"lifecycle": hook})
    await world.says("ready")

    await world.delete(grace=0)
    await world.vanished()

    assert not order.exists()


async def test_sidecars_stop_after_the_other_containers_in_reverse_order(world: World) -> None:
    world.start_kubelet()
    order = world.folder / "order"
    parting = f"trap 'sleep 0.1; echo NAME >> {order}; exit' TERM; touch {world.folder}/up-NAME; {FOREVER}"
    sidecars = [
        container_json(name=name, command=["sh", "-c", parting.replace("NAME", name)], restartPolicy="Always")
        for name in ("first", "second")
    ]
    await world.run(parting.replace("NAME", "main"), initContainers=sidecars)
    await eventually(lambda: len(list(world.folder.glob("up-*"))) == 3)

    await world.delete()
    await world.vanished()

    assert order.read_text().split() == ["main", "second", "first"]


async def test_a_sidecar_that_waits_for_other_containers_causes_no_busy_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[PodCheckpoint] = []
    look = PodCheckpoint.observe

    def counted(track: PodCheckpoint) -> list[RunChange]:
        looks.append(track)
        return look(track)

    monkeypatch.setattr(PodCheckpoint, "observe", counted)
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "60"]}}}}
    sidecar = container_json(name="beside", command=["sh", "-c", FOREVER], restartPolicy="Always", **hook)
    world.start_kubelet()
    await world.run(f"trap '' TERM; echo ready; {FOREVER}", container=hook, initContainers=[sidecar])
    await world.says("ready")

    looks.clear()
    await world.delete(grace=1)
    await world.vanished()

    assert len(looks) < 50


# Across kubelets


async def test_another_kubelet_continues_probing_and_repeats_no_hook(world: World) -> None:
    world.start_kubelet()
    order, failing = world.folder / "order", world.folder / "failing"
    fields = {
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", f"echo hook >> {order}"]}}},
        "readinessProbe": {"exec": {"command": ["test", "!", "-e", str(failing)]}, "failureThreshold": 1, **FAST},
    }
    await world.run(FOREVER, container=fields)
    await world.until(is_ready)

    await world.stop_kubelet()
    world.start_kubelet()
    failing.touch()
    await world.until(lambda pod: not is_ready(pod))

    assert order.read_text().split() == ["hook"]


async def test_a_pre_stop_hook_interrupted_by_a_killed_kubelet_runs_again(world: World) -> None:
    world.start_kubelet()
    order, gate = world.folder / "order", world.folder / "gate"
    script = f"echo hook >> {order}; until [ -e {gate} ]; do sleep 0.01; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", script]}}}
    await world.run(f"trap 'echo term >> {order}; exit' TERM; echo ready; {FOREVER}", container={"lifecycle": hook})
    await world.says("ready")
    await world.delete()
    await eventually(order.exists)

    await world.stop_kubelet()
    world.start_kubelet()
    await eventually(lambda: order.read_text().split() == ["hook", "hook"])
    gate.touch()
    await world.vanished()

    assert order.read_text().split() == ["hook", "hook", "term"]


async def test_a_probe_of_an_unknown_port_name_is_reported(world: World) -> None:
    world.start_kubelet()
    await world.run(FOREVER, container={"readinessProbe": {"httpGet": {"port": "web"}, **FAST}})

    assert await world.event("Unhealthy") == "Readiness probe errored: couldn't find port: web"


async def test_a_grpc_probe_checks_that_the_port_accepts_connections_and_an_event_says_so(
    world: World, free_port: int
) -> None:
    world.start_kubelet()
    listens = f"import socket, time; s = socket.create_server(('127.0.0.1', {free_port})); time.sleep(99)"
    good = {"readinessProbe": {"grpc": {"port": free_port}, **FAST}}
    bad = {"readinessProbe": {"grpc": {"port": 7}, **FAST}}
    await world.create(
        "p",
        container_json(command=[sys.executable, "-c", listens], **good),
        container_json(name="x", command=["sleep", "99"], **bad),
    )

    pod = await world.until(lambda pod: state(pod) and pod["status"]["containerStatuses"][0]["ready"])

    assert pod["status"]["containerStatuses"][1]["ready"] is False
    assert "connection refused" in await world.event("Unhealthy", "127.0.0.1:7")
    assert "grpc probe only checks that its port accepts connections" in await world.event("NotCarriedOut")
