"""`tarragon node` on a real control plane: this machine as one of its nodes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.base.clock import SystemClock
from tarragon.client.errors import Forbidden, NotFound, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import DeleteOptions, LogOptions, Selector
from tarragon.client.streams import closing_stream
from tarragon.kube.core import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICES,
)
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.kubelet.kubelet import end_all_containers
from tests.conftest import ROOT
from tests.localcluster.kubelet.builders import container_json, pod_json
from tests.real.test_refusals import ACCESS_REVIEWS
from tools.controlplane import API_SERVER, ControlPlane

pytestmark = pytest.mark.real

Json = dict[str, Any]
ANY_POD = PODS.with_model(dict)
ANY_NODE = NODES.with_model(dict)
NODE = "worker-1"
ROLES = {
    "": "tarragon-node",
    "kube-node-lease": "tarragon-node",
    "kube-system": "extension-apiserver-authentication-reader",
}
"""What deploy/node/permissions.yaml gives, by namespace; the empty one is that of a ClusterRole."""
SERVES = """\
import socket
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1])
line, _ = server.accept()
said = b""
while more := line.recv(1000):
    said += more
line.sendall(said.upper())
line.close()
"""


def resource_of(document: Json) -> Resource[Json]:
    group, _, version = document["apiVersion"].rpartition("/")
    kind = document["kind"]
    plural = f"{kind.lower()}s"
    return Resource(
        group=group, version=version, plural=plural, kind=kind, model=dict, namespaced=not kind.startswith("Cluster")
    )


class Machine:
    """One node of the control plane, as a process, with a namespace for the test's pods."""

    def __init__(self, plane: ControlPlane, cluster: HttpClient, folder: Path, namespace: str) -> None:
        self.plane = plane
        self.cluster = cluster
        self.folder = folder
        self.namespace = namespace
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, config: Path | None = None, *flags: str) -> str:
        """The line that says that it is ready."""
        words = ["node", "--kubeconfig", str(config or self.plane.kubeconfig), "--name", NODE]
        with (self.folder / "node.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tarragon", *words, *flags),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self.environment,
            )
        assert self._process.stdout
        line = (await self._process.stdout.readline()).decode()
        assert line.startswith("ready"), self.told
        return line

    @property
    def told(self) -> str:
        """On stderr, so far."""
        log = self.folder / "node.log"
        return log.read_text() if log.exists() else ""

    @property
    def environment(self) -> Mapping[str, str]:
        return {"TARRAGON_HOME": str(self.folder / "home"), "PATH": os.environ["PATH"], "HOME": str(self.folder)}

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process
        process, self._process = self._process, None
        process.send_signal(number)
        await process.communicate()
        assert process.returncode is not None
        return process.returncode

    async def run(self, script: str, name: str = "p", **spec: Any) -> None:
        """A pod for the scheduler of the control plane, on this node alone."""
        await self.create(name, container_json(command=["sh", "-c", script]), nodeName="", **spec)

    async def create(self, name: str, *containers: Json, **spec: Any) -> None:
        wanted = {"nodeSelector": {"kubernetes.io/hostname": NODE}, "restartPolicy": "Never", **spec}
        pod = pod_json(name, *containers, **wanted)
        pod["metadata"]["namespace"] = self.namespace
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.cluster.create(ANY_POD, pod)
                except (Forbidden, Unavailable):  # no controller has made the namespace's service account yet
                    await SystemClock().sleep(0.05)
                else:
                    return

    async def phase(self, phase: str, name: str = "p") -> Json:
        async with asyncio.timeout(60):
            selection = Selector(namespace=self.namespace, field_selector=f"metadata.name={name}")
            listing = await self.cluster.list(ANY_POD, selection)
            found = listing.items
            if found and found[0]["status"].get("phase") == phase:
                return found[0]
            async for event in self.cluster.watch(ANY_POD, selection, listing.resource_version):
                if event.object and event.type != "DELETED" and event.object["status"].get("phase") == phase:
                    return event.object
        raise AssertionError("the watch has ended")

    async def restarted(self) -> None:
        async with asyncio.timeout(60):
            while True:
                pod = await self.cluster.get(ANY_POD, Key(self.namespace, "p"))
                if any(each["restartCount"] for each in pod["status"].get("containerStatuses") or []):
                    return
                await SystemClock().sleep(0.1)

    async def gone(self) -> None:
        async with asyncio.timeout(60):
            while (await self.cluster.list(ANY_POD, Selector(namespace=self.namespace))).items:
                await SystemClock().sleep(0.1)

    async def log(self, name: str = "p", **options: Any) -> str:
        chunks = self.cluster.pod_log(Key(self.namespace, name), LogOptions(**options))
        return b"".join([chunk async for chunk in chunks]).decode()

    async def says(self, words: str, name: str = "p") -> None:
        said = b""
        await self.phase("Running", name)
        async with asyncio.timeout(60):
            log = self.cluster.pod_log(Key(self.namespace, name), LogOptions(follow=True))
            async with closing_stream(log) as chunks:
                async for chunk in chunks:
                    said += chunk
                    if words.encode() in said:
                        return
        raise AssertionError(f"has ended with {said!r}")

    async def node(self) -> Json:
        return await self.cluster.get(ANY_NODE, Key("", NODE))

    async def node_or_none(self) -> Json | None:
        with contextlib.suppress(NotFound):
            return await self.node()
        return None

    async def taints(self, *wanted: str) -> Json:
        """The node, as soon as it has these taints and no others."""
        async with asyncio.timeout(60):
            while True:
                node = await self.node()
                if {taint["key"] for taint in node["spec"].get("taints") or []} == set(wanted):
                    return node
                await SystemClock().sleep(0.1)

    async def clean(self) -> None:
        """Nothing of it runs any more, whatever the test has come to."""
        if self._process is not None:
            await self.end()
        for folder in (self.folder / "home").glob("clusters/*/[!_]*"):
            if folder.is_dir():
                await end_all_containers(folder, SystemClock())
        for pod in (await self.cluster.list(ANY_POD, Selector(namespace=self.namespace))).items:
            with contextlib.suppress(NotFound):
                name = pod["metadata"]["name"]
                await self.cluster.delete(PODS, Key(self.namespace, name), DeleteOptions(grace_period_seconds=0))
        with contextlib.suppress(NotFound):
            await self.cluster.delete(NODES, Key("", NODE))


@contextlib.asynccontextmanager
async def machine_of(plane: ControlPlane, folder: Path, namespace: str) -> AsyncIterator[Machine]:
    async with HttpClient(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1)) as cluster:
        machine = Machine(plane, cluster, folder, namespace)
        try:
            yield machine
        finally:
            await machine.clean()


@pytest.fixture
async def machine(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Machine]:
    namespace = f"node-{uuid.uuid4().hex[:8]}"
    async with machine_of(control_plane, tmp_path, namespace) as machine:
        await machine.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield machine


def is_ready(node: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in node.get("status", {}).get("conditions") or []}
    return conditions.get("Ready") == "True"


def ask(machine: Machine, node: Json, path: str, certificate: tuple[str, str] | None) -> tuple[int, str]:
    """What the node's own port answers."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if certificate:
        tls.load_cert_chain(*certificate)
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(f"https://{address}:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def certificate_of(config: Path, folder: Path) -> tuple[str, str]:
    user = yaml.safe_load(config.read_text())["users"][0]["user"]
    files = folder / "user.crt", folder / "user.key"
    for file, field in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
        file.write_bytes(base64.b64decode(user[field]))
    return str(files[0]), str(files[1])


@pytest.mark.both_releases
async def test_a_machine_becomes_a_node_that_the_scheduler_uses_and_its_logs_can_be_read(machine: Machine) -> None:
    await machine.start()
    node = await machine.taints()
    await machine.run("echo one; echo two; exit 3")
    pod = await machine.phase("Failed")

    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]} == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    assert await machine.log() == "one\ntwo\n"
    assert await machine.log(tail_lines=1) == "two\n"


async def test_a_log_is_followed_until_the_container_ends(machine: Machine) -> None:
    await machine.start()
    go = machine.folder / "go"
    await machine.run(f"echo begun; until [ -e {go} ]; do sleep 0.05; done; echo over")
    await machine.says("begun")
    following = asyncio.create_task(machine.log(follow=True))

    go.touch()
    async with asyncio.timeout(60):
        said = await following

    assert said == "begun\nover\n"


async def test_the_previous_run_of_a_restarted_container_can_be_read(machine: Machine) -> None:
    await machine.start()
    mark = machine.folder / "mark"
    script = f"if [ -e {mark} ]; then echo second; else touch {mark}; echo first; exit 1; fi"
    await machine.run(script, restartPolicy="OnFailure")
    await machine.phase("Succeeded")

    assert await machine.log(previous=True) == "first\n"
    assert await machine.log() == "second\n"


async def test_who_has_no_certificate_or_no_right_reads_nothing_on_the_nodes_own_port(machine: Machine) -> None:
    await machine.start()
    await machine.run("echo secret")
    await machine.phase("Succeeded")
    node = await machine.node()
    path = f"/containerLogs/{machine.namespace}/p/main"
    stranger = certificate_of(machine.plane.user("stranger"), machine.folder)

    assert ask(machine, node, path, None) == (401, "Unauthorized")
    assert ask(machine, node, path, stranger) == (403, "Forbidden (user=stranger, resource=nodes, subresource=proxy)")
    assert ask(machine, node, f"/exec/{machine.namespace}/p/main?output=1", stranger)[0] == 403
    admin = certificate_of(machine.plane.kubeconfig, machine.folder)
    assert ask(machine, node, path, admin) == (200, "secret\n")
    assert ask(machine, node, f"/containerLogs/{machine.namespace}/q/main", admin)[0] == 404
    assert ask(machine, node, f"/exec/{machine.namespace}/p/main?output=1", admin) == (400, "Upgrade request required")
    assert ask(machine, node, "/run/default/p/main", admin)[0] == 501


async def kubectl(machine: Machine, *words: str, told: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    flags = ("--kubeconfig", str(machine.plane.kubeconfig), "-n", machine.namespace)
    process = await asyncio.create_subprocess_exec(
        *("kubectl", *flags, *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate(told)
    return int(process.returncode or 0), out.decode(), err.decode()


@pytest.mark.both_releases
async def test_kubectl_gets_into_its_containers_through_the_api_server(machine: Machine) -> None:
    await machine.start()
    await machine.run("echo up; mkdir -p sent; exec sleep 1000")
    await machine.says("up")

    assert await kubectl(machine, "exec", "-i", "p", "--", "tr", "a", "b", told=b"aha\n") == (0, "bhb\n", "")
    code, out, err = await kubectl(machine, "exec", "p", "--", "sh", "-c", "echo $HOSTNAME; echo bad >&2; exit 7")
    assert (code, out) == (7, "p\n")
    assert err == "bad\ncommand terminated with exit code 7\n"
    (machine.folder / "file").write_bytes(os.urandom(3_000_000))
    assert (await kubectl(machine, "cp", str(machine.folder / "file"), "p:sent/file"))[0] == 0
    assert (await kubectl(machine, "cp", "p:sent/file", str(machine.folder / "back")))[0] == 0
    assert (machine.folder / "back").read_bytes() == (machine.folder / "file").read_bytes()
    refused = "Error from server (BadRequest): container none is not valid for pod p\n"
    assert await kubectl(machine, "exec", "p", "-c", "none", "--", "true") == (1, "", refused)


async def test_kubectl_forwards_a_port_to_a_process_through_the_api_server(machine: Machine) -> None:
    await machine.start()
    await machine.run(f"exec {sys.executable} -u -c '{SERVES}'")
    await machine.says("port ")
    port = (await machine.log()).split()[1]
    flags = ("--kubeconfig", str(machine.plane.kubeconfig), "-n", machine.namespace)
    forwarding = await asyncio.create_subprocess_exec(
        *("kubectl", *flags, "port-forward", "pod/p", f":{port}"), stdout=subprocess.PIPE
    )
    try:
        assert forwarding.stdout
        async with asyncio.timeout(60):
            here = (await forwarding.stdout.readline()).decode().split()[2].rpartition(":")[2]
            reader, writer = await asyncio.open_connection("127.0.0.1", int(here))
            writer.write(b"some words")
            writer.write_eof()
            assert await reader.read() == b"SOME WORDS"
            writer.close()
    finally:
        forwarding.terminate()
        await forwarding.wait()


async def test_containers_outlive_a_killed_node_and_the_next_one_takes_them_up(machine: Machine) -> None:
    await machine.start()
    go = machine.folder / "go"
    runs = machine.folder / "runs"
    await machine.run(f"echo run >> {runs}; until [ -e {go} ]; do sleep 0.05; done; echo over")
    before = await machine.phase("Running")

    await machine.end(signal.SIGKILL)
    go.touch()
    await machine.start()
    after = await machine.phase("Succeeded")

    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert runs.read_text() == "run\n"
    assert await machine.log() == "over\n"


async def test_a_node_that_is_told_to_end_says_nothing_of_it_and_its_pods_go_on(machine: Machine) -> None:
    await machine.start()
    await machine.run("echo begun; while :; do sleep 0.05; done")
    await machine.says("begun")
    before = await machine.node()

    code = await machine.end()
    after = await machine.node()
    await machine.start()

    assert code == 0
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert is_ready(after)
    assert (await machine.phase("Running"))["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_node_that_was_deleted_registers_again_and_keeps_its_pods(machine: Machine) -> None:
    await machine.start()
    await machine.run("while :; do sleep 0.05; done")
    before = await machine.phase("Running")
    deleted = await machine.node()

    await machine.cluster.delete(NODES, Key("", NODE))
    async with asyncio.timeout(60):
        while (node := await machine.node_or_none()) is None or not is_ready(node):
            await SystemClock().sleep(0.1)

    assert node["metadata"]["uid"] != deleted["metadata"]["uid"]
    assert (await machine.phase("Running"))["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_pod_that_does_not_fit_is_refused_as_a_kubelet_refuses_it(machine: Machine) -> None:
    await machine.start(None, "--memory", "1Gi")
    large = container_json(resources={"requests": {"memory": "2Gi"}})

    await machine.create("p", large, nodeName=NODE)
    pod = await machine.phase("Failed")

    assert pod["status"]["reason"] == "OutOfmemory"
    assert "requested: 2Gi, used: 0, capacity: 1Gi" in pod["status"]["message"]


async def test_a_pod_has_its_service_accounts_files_and_its_configuration(machine: Machine) -> None:
    await machine.start()
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    ask = f"""
import ssl, urllib.request
token = open("{place}/token").read()
url = "{machine.plane.url}/api/v1/namespaces/{machine.namespace}/pods"
request = urllib.request.Request(url, headers={{"Authorization": f"Bearer {{token}}"}})
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile="{place}/ca.crt"))
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""
    await machine.run(f"cat {place}/namespace; echo; {sys.executable} -c '{ask}'")
    await machine.phase("Succeeded")

    where, _, refusal = (await machine.log()).partition("\n")
    assert where == machine.namespace
    assert (
        f'User "system:serviceaccount:{machine.namespace}:default" cannot list resource "pods"'
        in json.loads(refusal)["message"]
    )


async def test_the_rights_of_a_node_are_enough(tmp_path: Path) -> None:
    """No administrator: the identity that a cluster gives its kubelets, under the rules it has for them."""
    plane = ControlPlane.start(tmp_path / "plane", arguments=["--enable-admission-plugins=NodeRestriction"])
    try:
        config = plane.user(f"system:node:{NODE}", ["system:nodes"])
        async with machine_of(plane, tmp_path, "default") as machine:
            await machine.start(config, "--client-ca-file", str(tmp_path / "plane/ca.crt"))
            await machine.taints()
            await machine.run("echo fine")
            await machine.phase("Succeeded")
            said = await machine.log()
            lease = await machine.cluster.get(LEASES.with_model(dict), Key("kube-node-lease", NODE))
        refused = [event for event in plane.audit_events() if event["user"]["username"] == f"system:node:{NODE}"]
        refused = [event for event in refused if event["responseStatus"].get("code") == 403]
    finally:
        plane.stop()

    assert said == "fine\n"
    assert lease["spec"]["holderIdentity"] == NODE
    assert [event["requestURI"] for event in refused] == []


async def test_the_role_that_comes_with_it_is_enough_and_not_more(tmp_path: Path) -> None:
    """For clusters that hand out no identities of kubelets."""
    account = "system:serviceaccount:tarragon-system:tarragon-node"
    plane = ControlPlane.start(tmp_path / "plane")
    try:
        async with machine_of(plane, tmp_path, "default") as machine:
            await machine.cluster.create(NAMESPACES, {"metadata": {"name": "tarragon-system"}})
            for document in yaml.safe_load_all((ROOT / "deploy/node/permissions.yaml").read_text()):
                await machine.cluster.create(resource_of(document), document)
            await until_granted(machine.cluster, account, ROLES)
            await machine.start(plane.user(account))
            await runs_without_a_token(machine)
            for document in yaml.safe_load_all((ROOT / "deploy/node/tokens.yaml").read_text()):
                document["metadata"]["namespace"] = "default"
                await machine.cluster.create(resource_of(document), document)
            await machine.taints()
            await machine.end()
            await until_granted(machine.cluster, account, {"default": "tarragon-node-tokens"})
            await machine.start(plane.user(account))
            await life_with_everything(machine)
            rules = [
                *await rules_of(machine.cluster, "ClusterRole", ""),
                *await rules_of(machine.cluster, "Role", "kube-node-lease"),
                *await rules_of(machine.cluster, "Role", "default", "tarragon-node-tokens"),
            ]
        events = [event for event in plane.audit_events() if event["user"]["username"] == account]
    finally:
        plane.stop()

    refused = [event for event in events if event["responseStatus"].get("code") == 403]
    assert {event["objectRef"].get("subresource") for event in refused} == {"token"}
    used = {(path_of(event["objectRef"]), event["verb"]) for event in events if "objectRef" in event}
    granted = {(what, verb) for rule in rules for what in rule["resources"] for verb in rule["verbs"]}
    # Servers without streaming lists are asked for lists.
    assert granted - used == {("pods", "list"), ("services", "list")}
    assert used <= granted


async def runs_without_a_token(machine: Machine) -> None:
    """What the role of all namespaces does not give."""
    await machine.run("test ! -e /var/run/secrets/kubernetes.io/serviceaccount/token", "tokenless")
    await machine.phase("Succeeded", "tokenless")
    await machine.cluster.delete(PODS, Key(machine.namespace, "tokenless"), DeleteOptions(grace_period_seconds=0))
    await machine.gone()


async def life_with_everything(machine: Machine) -> None:
    """A pod that mounts one of each, restarts (so that an event is told twice), is read, and is deleted."""
    where = {"namespace": machine.namespace, "name": "everything"}
    await machine.cluster.create(CONFIG_MAPS, {"metadata": where, "data": {"a": "b"}})
    await machine.cluster.create(SECRETS.with_model(dict), {"metadata": where, "stringData": {"a": "b"}})
    service = {"metadata": where, "spec": {"clusterIP": "None", "ports": [{"port": 2222}]}}
    await machine.cluster.create(SERVICES, service)
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
        "volumeName": "everything",
    }
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Mi"},
        "hostPath": {"path": str(machine.folder)},
    }
    await machine.cluster.create(
        PERSISTENT_VOLUMES.with_model(dict), {"metadata": {"name": "everything"}, "spec": volume}
    )
    await machine.cluster.create(PERSISTENT_VOLUME_CLAIMS.with_model(dict), {"metadata": where, "spec": claim})
    mark = machine.folder / "mark"
    main = container_json(
        command=["sh", "-c", f"[ -e {mark} ] || {{ touch {mark}; exit 1; }}; echo again; while :; do sleep 0.05; done"],
        env=[{"name": "ADDRESS", "value": "everything:2222"}],
    )
    volumes = [
        {"name": "files", "configMap": {"name": "everything"}},
        {"name": "keys", "secret": {"secretName": "everything"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "everything"}},
    ]
    await machine.create("p", main, nodeName="", restartPolicy="Always", volumes=volumes)
    await machine.restarted()
    await machine.says("again")
    await machine.cluster.delete(PODS, Key(machine.namespace, "p"), DeleteOptions(grace_period_seconds=1))
    await machine.gone()


async def rules_of(cluster: HttpClient, kind: str, namespace: str, name: str = "tarragon-node") -> Sequence[Json]:
    resource = resource_of({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind})
    role = await cluster.get(resource, Key(namespace, name))
    rules: Sequence[Json] = role["rules"]
    return rules


async def until_granted(cluster: HttpClient, account: str, roles: Mapping[str, str]) -> None:
    """What a role allows is allowed a moment after it was written."""
    wishes: list[Json] = []
    for namespace, role in roles.items():
        rules = await rules_of(cluster, "Role" if namespace else "ClusterRole", namespace, role)
        wishes += [{**wish, "namespace": namespace} for rule in rules for wish in granted_by(rule)]
    async with asyncio.timeout(60):
        for wish in wishes:
            review = {"spec": {"user": account, "resourceAttributes": wish}}
            while not (await cluster.create(ACCESS_REVIEWS, review))["status"]["allowed"]:
                await SystemClock().sleep(0.05)


def granted_by(rule: Json) -> Iterator[Json]:
    for group, what, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
        resource, _, subresource = what.partition("/")
        for name in rule.get("resourceNames", [""]):
            yield {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "name": name}


def path_of(what: Mapping[str, str]) -> str:
    return "/".join(filter(None, (what.get("resource"), what.get("subresource"))))


async def test_a_node_that_starts_before_its_api_server_serves_logs_all_the_same(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    own_control_plane.kill(API_SERVER)
    async with machine_of(own_control_plane, tmp_path, "default") as machine:
        starting = asyncio.create_task(machine.start())
        while "the node waits for its cluster" not in machine.told:
            await SystemClock().sleep(0.05)

        await asyncio.to_thread(own_control_plane.restart, API_SERVER)
        line = await starting

        assert "logs 127.0.0.1:" in line


async def test_a_second_kubelet_of_the_same_node_is_refused(machine: Machine) -> None:
    await machine.start()
    config = ["--kubeconfig", str(machine.plane.kubeconfig)]
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tarragon", "node", *config, "--name", NODE],
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert second.returncode == 1
    assert "another kubelet already runs this node" in second.stderr
