"""The official Python client, on the embedded server as on a real one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Beside
from tests.localcluster.apiserver.embedded import widget_definition

kubernetes = pytest.importorskip("kubernetes")

from kubernetes import client, config, dynamic, utils, watch  # noqa: E402 - it may be missing

Story = Callable[[Any, str], None]


@contextmanager
def connected(kubeconfig: Path) -> Iterator[tuple[Any, str]]:
    """A client and a namespace of its own."""
    with config.new_client_from_config(str(kubeconfig)) as api:
        name = f"python-{uuid.uuid4().hex[:8]}"
        core = client.CoreV1Api(api)
        core.create_namespace({"metadata": {"name": name}})
        yield api, name
        core.delete_namespace(name)
        api.rest_client.pool_manager.clear()  # a watch that was left early has its connection still


def played(kubeconfig: Path, story: Story) -> None:
    with connected(kubeconfig) as (api, namespace):
        story(api, namespace)


def config_map(name: str, **data: str) -> Any:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": "x"}), data=data)


def objects_live_and_end(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    made = core.create_namespaced_config_map(namespace, config_map("a", k="v"))
    assert core.read_namespaced_config_map("a", namespace).data == {"k": "v"}

    made.data = {"k": "w"}
    assert core.replace_namespaced_config_map("a", namespace, made).data == {"k": "w"}
    with pytest.raises(client.ApiException) as stale:
        core.replace_namespaced_config_map("a", namespace, made)
    assert (stale.value.status, stale.value.reason) == (409, "Conflict")

    core.delete_namespaced_config_map("a", namespace)
    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_config_map("a", namespace)
    assert missing.value.status == 404


def patches_of_every_type(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, config_map("a", k="v"))

    def patched(body: Any, content_type: str, **more: Any) -> dict[str, str]:
        answer = core.patch_namespaced_config_map("a", namespace, body, _content_type=content_type, **more)
        data: dict[str, str] = answer.data
        return data

    assert patched({"data": {"m": "1"}}, "application/merge-patch+json") == {"k": "v", "m": "1"}
    assert patched({"data": {"m": None, "s": "2"}}, "application/strategic-merge-patch+json") == {"k": "v", "s": "2"}
    assert patched([{"op": "remove", "path": "/data/s"}], "application/json-patch+json") == {"k": "v"}


def lists_come_in_pages(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    for number in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"c{number}"))

    first = core.list_namespaced_config_map(namespace, limit=2, label_selector="app=x")
    rest = core.list_namespaced_config_map(
        namespace,
        label_selector="app=x",
        _continue=first.metadata._continue,  # noqa: SLF001 - so it is called there
    )

    assert [one.metadata.name for one in [*first.items, *rest.items]] == [f"c{number}" for number in range(5)]
    core.delete_collection_namespaced_config_map(namespace, label_selector="app=x")
    assert core.list_namespaced_config_map(namespace, label_selector="app=x").items == []


def a_watch_sees_what_happens(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    since = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("a"))
    core.patch_namespaced_config_map("a", namespace, {"data": {"x": "y"}})
    core.delete_namespaced_config_map("a", namespace)

    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=since, label_selector="app=x", timeout_seconds=5
    )
    events = []
    with closing(stream):
        for event in stream:
            events.append((event["type"], event["object"].data))
            if len(events) == 3:
                break

    assert events == [("ADDED", None), ("MODIFIED", {"x": "y"}), ("DELETED", {"x": "y"})]


def a_kind_of_its_own_through_the_dynamic_client(api: Any, namespace: str) -> None:
    definitions = client.ApiextensionsV1Api(api)
    definitions.create_custom_resource_definition(widget_definition())
    try:
        with closing(watch.Watch().stream(definitions.list_custom_resource_definition, timeout_seconds=30)) as stream:
            next(event for event in stream if is_ours_and_established(event["object"]))
        widgets = dynamic.DynamicClient(api).resources.get(api_version="example.dev/v1", kind="Widget")
        body = {"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"color": "red"}}
        widgets.create(body=body, namespace=namespace)
        applied = {**body, "metadata": {"name": "w", "labels": {"a": "b"}}, "spec": {"color": "blue"}}
        widgets.patch(body=applied, namespace=namespace, content_type="application/merge-patch+json")

        assert widgets.get(name="w", namespace=namespace).spec.color == "blue"
        custom = client.CustomObjectsApi(api)
        listed = custom.list_namespaced_custom_object("example.dev", "v1", namespace, "widgets")
        assert [one["metadata"]["labels"] for one in listed["items"]] == [{"a": "b"}]
    finally:
        definitions.delete_custom_resource_definition("widgets.example.dev")


def is_ours_and_established(definition: Any) -> bool:
    conditions = definition.status.conditions or []
    is_established = any(one.type == "Established" and one.status == "True" for one in conditions)
    return bool(is_established and definition.metadata.name == "widgets.example.dev")


def objects_from_yaml(api: Any, namespace: str) -> None:
    documents = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s"},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t"}, "stringData": {"a": "b"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []},
    ]
    utils.create_from_yaml(api, yaml_objects=documents, namespace=namespace)

    core = client.CoreV1Api(api)
    assert core.read_namespaced_service("s", namespace).spec.cluster_ip == "None"
    assert core.read_namespaced_secret("t", namespace).data == {"a": "Yg=="}


def what_is_served_is_found(api: Any, namespace: str) -> None:
    assert "v1" in client.CoreApi(api).get_api_versions().versions
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert {"apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io"} <= groups
    assert client.VersionApi(api).get_code().major == "1"


STORIES: tuple[Story, ...] = (
    objects_live_and_end,
    patches_of_every_type,
    lists_come_in_pages,
    a_watch_sees_what_happens,
    a_kind_of_its_own_through_the_dynamic_client,
    objects_from_yaml,
    what_is_served_is_found,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_official_python_client_does_its_work(kubeconfig: Path, beside: Beside[None], story: Story) -> None:
    await beside(lambda: played(kubeconfig, story))
