"""An unmodified kubectl meets a cluster that it can't tell from another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import yaml

from tarragon.client.port import LogOptions
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.kubectl.conftest import Kubectl
from tests.localcluster.apiserver.embedded import Embedded, pod, widget, widget_definition

pytestmark = [pytest.mark.kubectl, pytest.mark.slow]


def manifest(*objects: Mapping[str, Any]) -> str:
    return yaml.safe_dump_all([dict(each) for each in objects])


async def test_discovery_shows_every_kind_and_version(kubectl: Kubectl, cluster: Embedded) -> None:
    version = json.loads(await kubectl("version", "-o", "json"))
    rows = kubectl.rows(await kubectl("api-resources"))
    # The first of a name is who answers to it: pods have metrics, too.
    resources = {row[0]: row for row in reversed(rows)}
    groups = (await kubectl("api-versions")).split()

    assert "+tarragon" in version["serverVersion"]["gitVersion"]
    assert resources["pods"][1:] == ["po", "v1", "true", "Pod"]
    assert resources["nodes"][1:] == ["no", "v1", "false", "Node"]
    assert resources["widgets"][1:] == ["wg", "example.dev/v1", "true", "Widget"]
    assert {"v1", "apiextensions.k8s.io/v1", "example.dev/v1"} <= set(groups)


async def test_what_kubectl_misses_as_it_asks_another_group_is_named(kubectl: Kubectl, cluster: Embedded) -> None:
    definition = widget_definition()
    spec = {**definition["spec"], "group": "other.dev"}
    await kubectl(
        "create", "-f", "-", stdin=manifest({**definition, "metadata": {"name": "widgets.other.dev"}, "spec": spec})
    )
    await kubectl("wait", "crd", "widgets.other.dev", "--for=condition=Established")
    await kubectl("create", "-f", "-", stdin=manifest({**widget("old"), "apiVersion": "other.dev/v1"}))

    _, _, said = await kubectl.run("get", "widgets")
    assert said.startswith("Warning: not listed: 1 widgets.other.dev, see kubectl get widgets.other.dev\n")
    hint = 'widgets.example.dev "old" not found; but widgets.other.dev has it: kubectl get widgets.other.dev old'
    for command in ("get", "describe"):
        assert hint in await kubectl.fails(command, "widget", "old")
    assert "other.dev" not in await kubectl.fails("get", "widget", "none")


async def test_a_kind_vanishes_with_its_definition(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("delete", "crd", "widgets.example.dev")

    assert "widgets" not in await kubectl("api-resources", "--cached=false")
    assert "the server doesn't have a resource type" in await kubectl.fails("get", "widgets")


@pytest.mark.parametrize("version", ["example.dev/v1", "kubeflow.org/v2beta1"])
async def test_a_kind_that_nobody_has_defined_is_refused_as_any_cluster_does(
    kubectl: Kubectl, cluster: Embedded, version: str
) -> None:
    """Whether the group is there or not."""
    unknown = manifest({"apiVersion": version, "kind": "MPIJob", "metadata": {"name": "a"}, "spec": {}})

    for command in ("create", "apply", "delete"):
        error = await kubectl.fails(command, "-f", "-", stdin=unknown)
        assert f'no matches for kind "MPIJob" in version "{version}"' in error
        assert "ensure CRDs are installed first" in error
    assert 'the server doesn\'t have a resource type "mpijobs"' in await kubectl.fails("get", "mpijobs")


async def test_objects_are_shown_in_every_form(kubectl: Kubectl, cluster: Embedded) -> None:
    both = manifest(
        widget("a", replicas=2), {**widget("b", color="blue"), "metadata": {"name": "b", "labels": {"tier": "web"}}}
    )
    assert (
        await kubectl("create", "-f", "-", stdin=both) == "widget.example.dev/a created\nwidget.example.dev/b created\n"
    )

    table = kubectl.rows(await kubectl("get", "widgets"))
    assert table[0] == ["NAME", "COLOR", "PHASE", "AGE"]
    assert [row[:2] for row in table[1:]] == [["a", "red"], ["b", "blue"]]
    wide = kubectl.rows(await kubectl("get", "wg", "a", "-o", "wide"))
    assert wide[0][-1] == "PARTS"
    assert wide[1][-1] == "2"
    assert await kubectl("get", "widgets", "-o", "name") == "widget.example.dev/a\nwidget.example.dev/b\n"
    assert await kubectl("get", "widgets", "-o", "name", "-l", "tier=web") == "widget.example.dev/b\n"
    assert await kubectl("get", "widgets", "-o", "name", "-l", "tier notin (web)") == "widget.example.dev/a\n"
    by_name = await kubectl("get", "widgets", "-A", "-o", "name", "--field-selector", "metadata.name=a")
    assert by_name == "widget.example.dev/a\n"
    assert yaml.safe_load(await kubectl("get", "widget", "a", "-o", "yaml"))["spec"] == {"color": "red", "replicas": 2}
    listed = json.loads(await kubectl("get", "widgets", "-o", "json"))
    assert [each["metadata"]["name"] for each in listed["items"]] == ["a", "b"]
    columns = await kubectl("get", "widgets", "-o", "custom-columns=N:.metadata.name,C:.spec.color", "--no-headers")
    assert kubectl.rows(columns) == [["a", "red"], ["b", "blue"]]
    assert await kubectl("get", "widgets", "--sort-by", ".spec.color", "-o", "name") == (
        "widget.example.dev/b\nwidget.example.dev/a\n"
    )
    assert "default" in await kubectl("get", "widgets", "-A")
    assert "widget.example.dev/a" in await kubectl("get", "all")


async def test_a_missing_object_is_named(kubectl: Kubectl, cluster: Embedded) -> None:
    assert await kubectl.fails("get", "pod", "none") == 'Error from server (NotFound): pods "none" not found\n'
    error = await kubectl.fails("get", "widget", "none")
    assert error == 'Error from server (NotFound): widgets.example.dev "none" not found\n'


async def test_a_pod_is_shown_as_its_users_know_it(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(pod("p", nodeName="laptop")))
    status = {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "containerStatuses": [
            {
                "name": "main",
                "image": "busybox",
                "imageID": "",
                "ready": False,
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            }
        ],
    }
    async with cluster.client() as client:
        await client.patch(PODS, Key("default", "p"), {"status": status}, subresource="status")

    table = kubectl.rows(await kubectl("get", "pods", "-o", "wide"))
    assert table[0][:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert table[1][:4] == ["p", "0/1", "CrashLoopBackOff", "3"]
    assert table[1][5:7] == ["127.0.0.1", "laptop"]
    described = await kubectl("describe", "pod", "p")
    assert "CrashLoopBackOff" in described
    assert "laptop" in described


async def test_a_watch_prints_every_change_once(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    watching = await kubectl.start("get", "widgets", "-w", "--no-headers")
    assert watching.stdout is not None
    try:
        first = await asyncio.wait_for(watching.stdout.readline(), 30)
        await kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"color":"green"}}')
        second = await asyncio.wait_for(watching.stdout.readline(), 30)
        await kubectl("delete", "widget", "a")
        third = await asyncio.wait_for(watching.stdout.readline(), 30)
    finally:
        watching.kill()
        await watching.communicate()

    assert [line.split()[:2] for line in (first, second, third)] == [[b"a", b"red"], [b"a", b"green"], [b"a", b"green"]]


async def test_apply_creates_then_changes_then_rests(kubectl: Kubectl, cluster: Embedded) -> None:
    def applied(value: Mapping[str, Any]) -> str:
        return manifest(value)

    labelled = {**widget("a", replicas=1), "metadata": {"name": "a", "labels": {"one": "1", "two": "2"}}}
    relabelled = {**widget("a", replicas=1), "metadata": {"name": "a", "labels": {"one": "1"}}}

    assert await kubectl("apply", "-f", "-", stdin=applied(labelled)) == "widget.example.dev/a created\n"
    assert await kubectl("apply", "-f", "-", stdin=applied(labelled)) == "widget.example.dev/a unchanged\n"
    code, out, _ = await kubectl.run("diff", "-f", "-", stdin=applied(relabelled))
    assert code == 1
    assert "-    two: " in out
    assert await kubectl("apply", "-f", "-", stdin=applied(relabelled)) == "widget.example.dev/a configured\n"
    assert (await cluster.stored("widgets", "a", "example.dev"))["metadata"]["labels"] == {"one": "1"}
    assert (await kubectl.run("diff", "-f", "-", stdin=applied(relabelled)))[0] == 0


async def test_applying_a_built_in_kind_merges_its_lists_by_their_keys(kubectl: Kubectl, cluster: Embedded) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {
            "clusterIP": "None",
            "selector": {"a": "b"},
            "ports": [{"name": "one", "port": 1}, {"name": "two", "port": 2}],
        },
    }
    await kubectl("apply", "-f", "-", stdin=manifest(service))
    async with cluster.client() as client:
        stored = await cluster.stored("services", "s")
        ports = [*stored["spec"]["ports"], {"name": "injected", "port": 9, "protocol": "TCP", "targetPort": 9}]
        from tarragon.kube.core import SERVICES

        await client.patch(SERVICES, Key("default", "s"), {"spec": {"ports": ports}})
    service["spec"]["ports"] = [{"name": "one", "port": 1, "targetPort": 7}]  # type: ignore[index]
    await kubectl("apply", "-f", "-", stdin=manifest(service))

    ports = (await cluster.stored("services", "s"))["spec"]["ports"]
    assert [(port["name"], port["port"], port.get("targetPort")) for port in ports] == [
        ("one", 1, 7),
        ("injected", 9, 9),
    ]


async def test_edit_replace_and_create_dry_run(kubectl: Kubectl, cluster: Embedded) -> None:
    dry = await kubectl("create", "-f", "-", "--dry-run=server", stdin=manifest(widget("a")))
    assert dry == "widget.example.dev/a created (server dry run)\n"
    assert "NotFound" in await kubectl.fails("get", "widget", "a")

    await kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    assert "AlreadyExists" in await kubectl.fails("create", "-f", "-", stdin=manifest(widget("a")))
    assert await kubectl("edit", "widget", "a") == "widget.example.dev/a edited\n"
    assert (await cluster.stored("widgets", "a", "example.dev"))["spec"]["color"] == "blue"
    await kubectl("replace", "-f", "-", stdin=manifest(widget("a", color="green")))
    assert (await cluster.stored("widgets", "a", "example.dev"))["spec"] == {"color": "green"}


async def test_replace_of_a_version_that_is_gone_conflicts(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    old = await kubectl("get", "widget", "a", "-o", "yaml")
    await kubectl("label", "widget", "a", "x=y")

    assert "the object has been modified" in await kubectl.fails("replace", "-f", "-", stdin=old)


async def test_patches_of_every_type(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(widget("a"), pod("p")))

    await kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"replicas":3}}')
    await kubectl(
        "patch", "widget", "a", "--type=json", "-p", '[{"op":"replace","path":"/spec/color","value":"green"}]'
    )
    await kubectl("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Fine"}}')
    await kubectl("patch", "pod", "p", "-p", '{"spec":{"containers":[{"name":"main","image":"alpine"}]}}')

    found = await cluster.stored("widgets", "a", "example.dev")
    assert found["spec"] == {"color": "green", "replicas": 3}
    assert found["status"] == {"phase": "Fine"}
    assert [each["image"] for each in (await cluster.stored("pods", "p"))["spec"]["containers"]] == ["alpine"]


async def test_labels_and_annotations_come_and_go(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(pod("p")))
    await kubectl("label", "pod", "p", "tier=web")
    await kubectl("annotate", "pod", "p", "note=hello")
    metadata = (await cluster.stored("pods", "p"))["metadata"]
    assert metadata["labels"] == {"tier": "web"}
    assert metadata["annotations"]["note"] == "hello"

    await kubectl("label", "pod", "p", "tier-")
    assert not (await cluster.stored("pods", "p"))["metadata"].get("labels")


async def test_scale_changes_the_number_that_the_definition_points_to(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(widget("a", replicas=1)))

    assert await kubectl("scale", "widget/a", "--replicas=4") == "widget.example.dev/a scaled\n"
    assert (await cluster.stored("widgets", "a", "example.dev"))["spec"]["replicas"] == 4
    assert "replicas" in await kubectl.fails("scale", "widget/a", "--current-replicas=1", "--replicas=2")
    shown = kubectl.rows(await kubectl("get", "widget", "a", "--subresource=scale"))
    assert shown[0][:3] == ["NAME", "DESIRED", "AVAILABLE"]
    assert shown[1][:2] == ["a", "4"]


async def test_explain_knows_built_in_and_custom_kinds(kubectl: Kubectl, cluster: Embedded) -> None:
    custom = await kubectl("explain", "widget.spec.replicas")
    assert "How many parts it has." in custom
    assert "<integer>" in custom
    built_in = await kubectl("explain", "pod.spec.containers.resources.limits")
    assert "map[string]Quantity" in built_in
    assert "openAPIV3Schema" in await kubectl("explain", "crd.spec.versions.schema")
    assert "creationTimestamp" in await kubectl("explain", "widget.metadata")
    assert "nodeName" in await kubectl("explain", "pod", "--recursive")


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ({**widget("a"), "spec": {"colour": "red"}}, 'unknown field "spec.colour"'),
        (
            {**pod("p"), "spec": {"containers": [{"name": "c", "image": "i", "comand": ["x"]}]}},
            "spec.containers[0].comand",
        ),
    ],
    ids=["custom", "built-in"],
)
async def test_a_typo_is_refused_with_its_path(
    kubectl: Kubectl, cluster: Embedded, broken: dict[str, Any], path: str
) -> None:
    for verb in ("create", "apply"):
        assert path in await kubectl.fails(verb, "-f", "-", stdin=manifest(broken))
    warned = await kubectl.run("create", "-f", "-", "--validate=warn", stdin=manifest(broken))
    assert warned[0] == 0
    assert "Warning" in warned[2]
    assert path in warned[2]


async def test_values_that_the_schema_forbids_are_all_named(kubectl: Kubectl, cluster: Embedded) -> None:
    error = await kubectl.fails("create", "-f", "-", stdin=manifest(widget("a", color="pink", replicas=-1)))

    assert "spec.color: Unsupported value" in error
    assert "spec.replicas: Invalid value" in error


class Said:
    """What a container said, so far; it goes on when the test says so."""

    def __init__(self) -> None:
        self.more = asyncio.Event()
        self.asked: list[LogOptions] = []

    async def read_log(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        assert pod["kind"] == "Pod"
        self.asked.append(options)
        yield b"first\n"
        if options.follow:
            await self.more.wait()
            yield b"second\n"


async def test_logs_are_shown_and_followed(kubectl: Kubectl, cluster: Embedded) -> None:
    said = Said()
    cluster.api.pod_logs = said
    await kubectl("create", "-f", "-", stdin=manifest(pod("p", nodeName="laptop")))

    assert await kubectl("logs", "p", "--tail=5", "--timestamps") == "first\n"
    assert said.asked[-1].tail_lines == 5
    assert said.asked[-1].timestamps
    assert await kubectl("logs", "p", "--limit-bytes=3") == "fir"

    following = await kubectl.start("logs", "-f", "p")
    assert following.stdout is not None
    assert await asyncio.wait_for(following.stdout.readline(), 30) == b"first\n"
    said.more.set()
    out, _ = await asyncio.wait_for(following.communicate(), 30)
    assert out == b"second\n"


async def test_events_tell_what_happened_to_whom(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(pod("p")))
    about = await cluster.stored("pods", "p")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "p.1", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "namespace": "default",
            "uid": about["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "Tired",
        "message": "the pod yawned",
        "lastTimestamp": about["metadata"]["creationTimestamp"],
        "count": 2,
    }
    await kubectl("create", "-f", "-", stdin=manifest(event))

    for command in (["get", "events"], ["events"], ["events", "--for", "pod/p"], ["describe", "pod", "p"]):
        out = await kubectl(*command)
        assert "Tired" in out
        assert "the pod yawned" in out


async def test_describe_tells_of_custom_kinds_and_of_nodes(kubectl: Kubectl, cluster: Embedded) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "laptop"},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
    }
    await kubectl("create", "-f", "-", stdin=manifest(widget("a", replicas=2), node, pod("p", nodeName="laptop")))

    assert "Replicas:  2" in await kubectl("describe", "widget", "a")
    described = await kubectl("describe", "node", "laptop")
    assert "Non-terminated Pods:" in described
    assert "(1 in total)" in described


async def test_wait_sees_a_condition_a_value_and_the_end(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    await kubectl("wait", "crd/widgets.example.dev", "--for=condition=Established", "--timeout=20s")

    waiting = await kubectl.start("wait", "widget/a", "--for=condition=Ready", "--timeout=30s")
    done = '{"status":{"phase":"Fine","conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl("patch", "widget", "a", "--subresource=status", "--type=merge", "-p", done)
    out, _ = await asyncio.wait_for(waiting.communicate(), 40)
    assert b"condition met" in out
    await kubectl("wait", "widget/a", "--for=jsonpath={.status.phase}=Fine", "--timeout=20s")

    ending = await kubectl.start("wait", "widget/a", "--for=delete", "--timeout=30s")
    await kubectl("delete", "widget", "a")
    await asyncio.wait_for(ending.communicate(), 40)
    assert ending.returncode == 0


async def test_delete_takes_one_or_all_or_those_selected(kubectl: Kubectl, cluster: Embedded) -> None:
    four = [{**widget(name), "metadata": {"name": name, "labels": {"called": name}}} for name in "abcd"]
    await kubectl("create", "-f", "-", stdin=manifest(*four))

    assert await kubectl("delete", "widget", "a") == 'widget.example.dev "a" deleted\n'
    assert await kubectl("delete", "widget", "-l", "called=b") == 'widget.example.dev "b" deleted\n'
    assert (
        await kubectl("delete", "widget", "c", "--dry-run=server")
        == 'widget.example.dev "c" deleted (server dry run)\n'
    )
    assert await kubectl("get", "widgets", "-o", "name") == "widget.example.dev/c\nwidget.example.dev/d\n"
    await kubectl("delete", "widgets", "--all")
    assert await kubectl("get", "widgets", "-o", "name") == ""
    assert await kubectl("delete", "widget", "a", "--ignore-not-found") == ""
    assert "NotFound" in await kubectl.fails("delete", "widget", "a")


async def test_a_foreground_delete_waits_for_the_dependents(kubectl: Kubectl, cluster: Embedded) -> None:
    await kubectl("create", "-f", "-", stdin=manifest(widget("a")))
    await kubectl("delete", "widget", "a", "--cascade=foreground", "--wait=false")

    metadata = (await cluster.stored("widgets", "a", "example.dev"))["metadata"]
    assert metadata["finalizers"] == ["foregroundDeletion"]
    assert metadata["deletionTimestamp"]


async def test_health_and_a_wrong_token(kubectl: Kubectl, cluster: Embedded) -> None:
    assert await kubectl("get", "--raw", "/readyz") == "ok"
    error = await kubectl.fails("get", "pods", "--token=wrong")
    assert "You must be logged in to the server" in error


async def test_what_kubectl_sends_as_protobuf_only_is_created(kubectl: Kubectl, cluster: Embedded) -> None:
    (kubectl.folder / "data").write_bytes(b"\x00\xff")
    assert await kubectl("create", "namespace", "team") == "namespace/team created\n"
    await kubectl("create", "configmap", "c", "--from-literal=a=b", f"--from-file=bin={kubectl.folder / 'data'}")
    await kubectl("create", "secret", "generic", "s", "--from-literal=password=hunter2")
    await kubectl("create", "serviceaccount", "robot")

    assert "team" in await kubectl("get", "namespaces")
    config_map = await cluster.stored("configmaps", "c")
    assert (config_map["data"], config_map["binaryData"]) == ({"a": "b"}, {"bin": "AP8="})
    secret = await cluster.stored("secrets", "s")
    assert (secret["data"], secret["type"]) == ({"password": "aHVudGVyMg=="}, "Opaque")
    assert "robot" in await kubectl("get", "serviceaccounts")


@pytest.mark.parametrize(
    "created",
    [
        "namespace n",
        "secret docker-registry s --docker-server=here --docker-username=me --docker-password=hunter2",
        "quota q --hard=pods=1,requests.cpu=500m --scopes=BestEffort",
        "role r --verb=get,list --resource=pods,pods/log --resource-name=one",
        "rolebinding b --clusterrole=view --serviceaccount=default:robot --user=me",
        "clusterrole c --verb=get --non-resource-url=/healthz",
        "clusterrolebinding d --clusterrole=view --group=us",
        "priorityclass p --value=1000 --preemption-policy=Never --description=words",
        "service clusterip v --tcp=80:8080 --clusterip=None",
        "service nodeport w --tcp=80:http",
    ],
)
async def test_what_kubectl_sends_as_protobuf_is_what_it_would_send_as_json(
    kubectl: Kubectl, cluster: Embedded, created: str
) -> None:
    manifest_ = await kubectl("create", *created.split(), "--dry-run=client", "-o", "json")
    from_json = await kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=manifest_)

    from_protobuf = await kubectl("create", *created.split(), "--dry-run=server", "-o", "json")

    assert without_chance(from_protobuf) == without_chance(from_json)


def without_chance(printed: str) -> Any:
    """What two creations of one object have in common. kubectl prints a status of its own making with some kinds."""
    value = json.loads(printed)
    value.pop("status", None)
    for name in ("uid", "creationTimestamp", "resourceVersion", "managedFields"):
        value["metadata"].pop(name, None)
    return value
