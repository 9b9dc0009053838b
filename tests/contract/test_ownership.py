"""The same writes on the embedded server and on a real one leave the same objects, owned field by field by the same.

Not the same, as the real one here is older (1.20) than the one that is followed (1.32): an entry does not say through
which subresource it came, one that has changed nothing has a time all the same, and several words of refusals. What
1.32 owns as a whole (selectors, references) and how it orders merged lists is not in these stories for that reason.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ApiError
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.http.transport import Request, RestConfig, Transport
from tarragon.kube.codec import decode, encode
from tests.contract.conftest import define_gadgets, takes_pods
from tests.localcluster.apiserver.embedded import embedded
from tools.controlplane import ControlPlane

Json = dict[str, Any]

pytestmark = [pytest.mark.real]

JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Step:
    """One write. `PLACE` in its path and its body is the namespace, `GROUP` the group of a custom kind."""

    method: str
    path: str
    body: Json
    content_type: str = JSON
    query: dict[str, str] = field(default_factory=dict)


def create(path: str, body: Json, manager: str) -> Step:
    return Step("POST", path, body, JSON, {"fieldManager": manager})


def patch(path: str, body: Json, manager: str) -> Step:
    return Step("PATCH", path, body, MERGE, {"fieldManager": manager})


def apply(path: str, body: Json, manager: str, **query: str) -> Step:
    return Step("PATCH", path, body, APPLY, {"fieldManager": manager, **query})


CONFIG_MAP = "/api/v1/namespaces/PLACE/configmaps/a"
SERVICE = "/api/v1/namespaces/PLACE/services/a"
PODS = "/api/v1/namespaces/PLACE/pods"
GADGET = "/apis/GROUP/v1/namespaces/PLACE/gadgets/a"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def config(data: Json | None = None, **metadata: Any) -> Json:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return body if data is None else {**body, "data": data}


def service(*ports: Json, **spec: Any) -> Json:
    whole = {"clusterIP": "None", "ports": list(ports), **spec} if ports else spec
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": whole}


def pod(**container: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", **container}]},
    }


def gadget(version: str = "v1", **parts: Any) -> Json:
    return {"apiVersion": f"GROUP/{version}", "kind": "Gadget", "metadata": {"name": "a"}, **parts}


WHOLE_POD = {
    "metadata": {"name": "a", "labels": {"l": "m"}, "annotations": {"x": "y"}},
    "spec": {
        "nodeName": "nowhere",
        "securityContext": {"runAsUser": 1000},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "command": ["a"],
                "env": [{"name": "X", "value": "y"}, {"name": "Y"}],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1000m"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
    },
}


TIME = "2026-01-01T00:00:00Z"
CONDITION = {"type": "Odd", "status": "True", "lastProbeTime": TIME, "lastTransitionTime": TIME}
"""With its times: where they are missing, a real server writes, and owns, nulls."""

STORIES: dict[str, Sequence[Step]] = {
    "one after the other": [
        apply(CONFIG_MAP, config({"a": "1", "b": "2"}), "one"),
        apply(CONFIG_MAP, config({"a": "1", "b": "2"}), "one"),
        apply(CONFIG_MAP, config({"a": "1"}), "one"),
        apply(CONFIG_MAP, config({"a": "1", "c": "2"}), "two"),
        apply(CONFIG_MAP, config({"a": "2", "c": "3"}), "two"),
        apply(CONFIG_MAP, config({"a": "2", "c": "3"}), "two", force="true", dryRun="All"),
        apply(CONFIG_MAP, config({"a": "2", "c": "3"}), "two", force="true"),
        patch(CONFIG_MAP, {"data": {"a": "9", "z": "q"}}, "editor"),
        apply(CONFIG_MAP, config({"a": "2", "z": "p"}), "three"),
        apply(CONFIG_MAP, config({"c": "3"}), "two"),
        apply(CONFIG_MAP, config(), "two"),
        patch(CONFIG_MAP, {"metadata": {"labels": {"x": "y"}, "annotations": {"m": "n"}}}, "editor"),
        patch(CONFIG_MAP, {"metadata": {"labels": None}}, "another"),
    ],
    "ownership forgotten": [
        create("/api/v1/namespaces/PLACE/configmaps", config({"a": "1"}, labels={"l": "m"}), "maker"),
        patch(CONFIG_MAP, {"metadata": {"managedFields": [{}]}}, "editor"),
        patch(CONFIG_MAP, {"data": {"n": "1"}}, "editor"),
        apply(CONFIG_MAP, config({"a": "7"}), "two"),
        apply(CONFIG_MAP, config({"a": "7"}), "two", force="true"),
        patch(CONFIG_MAP, {"metadata": {"managedFields": []}}, "editor"),
    ],
    "sets of finalizers": [
        apply(CONFIG_MAP, config(finalizers=["e.com/a", "e.com/b"]), "one", dryRun="All"),
        apply(CONFIG_MAP, config(finalizers=["e.com/a", "e.com/b"]), "one"),
        apply(CONFIG_MAP, config(finalizers=["e.com/b", "e.com/c"]), "two"),
        apply(CONFIG_MAP, config(finalizers=["e.com/b"]), "two"),
        apply(CONFIG_MAP, config(finalizers=[]), "one"),
    ],
    "refusals": [
        Step("PATCH", CONFIG_MAP, config(), APPLY),
        Step("PATCH", CONFIG_MAP, config(), MERGE, {"force": "true"}),
        apply(CONFIG_MAP, config(managedFields=[]), "one"),
        apply(CONFIG_MAP, config(namespace="other"), "one"),
        apply(CONFIG_MAP, {**config(), "metadata": {"name": "b"}}, "one"),
        apply(CONFIG_MAP, {**config(), "foo": 1}, "one"),
        apply(CONFIG_MAP, {**config(), "data": [1]}, "one"),
        apply(CONFIG_MAP, config({"a": 1}), "one"),
        apply(CONFIG_MAP, config(finalizers=["e.com/a", "e.com/a"]), "one"),
        apply(CONFIG_MAP, config(uid="x"), "one"),
        apply(CONFIG_MAP, config(resourceVersion="1"), "one"),
        apply(CONFIG_MAP, config({"a": "b"}, resourceVersion="1"), "one"),
        apply("/api/v1/namespaces/nowhere/configmaps/a", config(), "one"),
    ],
    "twelve editors": [
        create("/api/v1/namespaces/PLACE/configmaps", config({"a": "1"}), "a-maker"),
        *(patch(CONFIG_MAP, {"data": {f"k{number}": "v"}}, f"m{number:02}") for number in range(12)),
    ],
    "from the client's side": [
        create(
            "/api/v1/namespaces/PLACE/configmaps",
            config(
                {"a": "1", "b": "2"},
                annotations={
                    LAST_APPLIED: '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},'
                    '"data":{"a":"1","b":"2"}}'
                },
            ),
            "kubectl-client-side-apply",
        ),
        apply(CONFIG_MAP, config({"a": "3"}), "somebody"),
        apply(CONFIG_MAP, config({"a": "<3>"}, annotations={"x": "y"}), "kubectl"),
        patch(CONFIG_MAP, {"data": {"a": "5"}}, "editor"),
        apply(CONFIG_MAP, config({"a": "6"}), "kubectl"),
    ],
    "ports of a service": [
        apply(SERVICE, service({"port": 80, "protocol": "TCP", "name": "a"}), "one"),
        apply(SERVICE, service({"port": 80, "protocol": "UDP", "name": "u"}), "two"),
        apply(SERVICE, service({"port": 80, "protocol": "TCP", "name": "z"}), "three"),
        apply(SERVICE, service({"port": 80, "protocol": "TCP", "name": "z"}), "three", force="true"),
        apply(SERVICE, service(sessionAffinity="None"), "two"),
        apply(
            f"{SERVICE}/status",
            {**service(), "spec": {}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}},
            "balancer",
        ),
    ],
    "a pod and its status": [
        create(PODS, WHOLE_POD, "maker"),
        patch(f"{PODS}/a/status", {"status": {"conditions": [CONDITION]}}, "kubelet"),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running", "reason": "So"}}, "kubelet"),
        apply(f"{PODS}/a", pod(image="i:2"), "one"),
        apply(f"{PODS}/a", pod(image="i:2"), "one", force="true"),
        apply(f"{PODS}/a", pod(image="i:2", resources={"limits": {"cpu": "1"}}), "one"),
        apply(f"{PODS}/a", pod(resources={"limits": {"cpu": "1000m"}}), "one"),
    ],
    "a kind of its own": [
        apply(GADGET, gadget(spec={"replicas": 1, "mode": "fast"}), "one"),
        apply(GADGET, gadget(spec={"mode": "slow"}), "two"),
        apply(GADGET, gadget(spec={"mode": "slow"}), "two", force="true"),
        patch(GADGET, {"spec": {"replicas": 3}}, "editor"),
        patch(f"{GADGET}/status", {"status": {"phase": "x"}}, "reporter"),
        apply(f"{GADGET}/status", gadget(status={"phase": "y"}), "status"),
        apply(GADGET.replace("/v1/", "/v1beta1/"), gadget("v1beta1", spec={"replicas": 5}), "one"),
        apply(GADGET.replace("/v1/", "/v1beta1/"), gadget("v1beta1", spec={"replicas": 3}), "one"),
    ],
}


@dataclass(frozen=True, slots=True)
class Side:
    """A server, and a place on it that is called the same in all answers."""

    transport: Transport
    namespace: str
    group: str

    async def answers(self, story: Sequence[Step]) -> list[Any]:
        return [await self._answer(step) for step in story]

    async def _answer(self, step: Step) -> Any:
        body = self._here(encode(step.body).decode()).encode()
        request = Request(
            method=step.method,
            path=self._here(step.path),
            query=step.query,
            body=body,
            content_type=step.content_type,
        )
        try:
            found = await self.transport.call(request)
        except ApiError as error:
            return _refusal(self._anywhere(str(error)), error)
        return _shown(decode(self._anywhere(found.decode()).encode(), dict))

    def _here(self, text: str) -> str:
        return text.replace("PLACE", self.namespace).replace("GROUP", self.group)

    def _anywhere(self, text: str) -> str:
        return text.replace(self.namespace, "PLACE").replace(self.group, "GROUP")


def _refusal(words: str, error: ApiError) -> Any:
    fields = sorted({cause.get("field", "") for cause in error.causes})
    return error.code, re.sub(r' with subresource ".*?"|(?<=patch object) \(.*?\)', "", words), fields


def _shown(found: Json) -> Any:
    metadata = found["metadata"]
    entries = [{name: one[name] for name in one if name not in _NOT_ALIKE} for one in metadata.get("managedFields", ())]
    kept = {name: metadata.get(name) for name in ("labels", "annotations", "finalizers")}
    parts = {name: found.get(name) for name in ("data", "spec")} if found["kind"] in {"ConfigMap", "Gadget"} else {}
    return kept, parts, sorted(entries, key=lambda one: (one["operation"], one["manager"], encode(one["fieldsV1"])))


_NOT_ALIKE = ("time", "subresource")


async def side(stack: AsyncExitStack, server: RestConfig) -> Side:
    mark = uuid.uuid4().hex[:12]
    http = await stack.enter_async_context(HttpClient(server, random.Random(1)))
    transport = Transport(server, random.Random(1), SystemClock())
    stack.push_async_callback(transport.close)
    made = Side(transport, f"ownership-{mark}", f"{mark}.example.com")
    await transport.call(
        Request(method="POST", path="/api/v1/namespaces", body=encode({"metadata": {"name": made.namespace}}))
    )
    await takes_pods(http, made.namespace)
    await define_gadgets(http, made.group)
    return made


@pytest.fixture
async def sides(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[tuple[Side, Side]]:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(embedded(tmp_path))
        access = load_kubeconfig({}, path=control_plane.kubeconfig)
        yield await side(stack, running.at()), await side(stack, access.rest_config)


@pytest.mark.parametrize("story", STORIES)
async def test_both_servers_know_alike_who_owns_what(sides: tuple[Side, Side], story: str) -> None:
    embedded_side, real_side = sides

    ours = await embedded_side.answers(STORIES[story])
    theirs = await real_side.answers(STORIES[story])

    for step, mine, real in zip(STORIES[story], ours, theirs, strict=True):
        assert mine == real, step
