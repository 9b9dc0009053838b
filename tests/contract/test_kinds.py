from __future__ import annotations

import datetime as dt

import pytest

from tarragon.client.errors import ApiError, BadRequest, Invalid, NotFound
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, SECRETS, SERVICES
from tarragon.kube.meta import Key, Resource
from tests.contract.conftest import Gadgets, definition, older
from tests.contract.objects import WHOLE_PODS, Json, gadget, pod, watching


async def test_a_pod_has_the_defaults_that_clients_rely_on(cluster: Client, namespace: str) -> None:
    body = pod(namespace, "a")
    body["spec"]["containers"][0] |= {
        "resources": {"limits": {"cpu": "1"}},
        "ports": [{"containerPort": 2222}],
    }

    made = await cluster.create(WHOLE_PODS, body)

    spec, container = made["spec"], made["spec"]["containers"][0]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [{"containerPort": 2222, "protocol": "TCP"}]
    assert container["resources"]["requests"] == {"cpu": "1"}
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}


NOT_READY, UNREACHABLE = (
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
)


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"key": "a", "operator": "Exists"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{**NOT_READY, "tolerationSeconds": 9}], [UNREACHABLE]),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    ],
    ids=["none", "another", "all", "one", "no other effect"],
)
async def test_a_pod_tolerates_a_node_in_trouble_for_five_minutes_unless_it_says_otherwise(
    cluster: Client, namespace: str, own: list[Json], added: list[Json]
) -> None:
    made = await cluster.create(WHOLE_PODS, pod(namespace, "a", tolerations=own))

    assert made["spec"].get("tolerations", []) == own + added


async def test_a_pods_status_is_its_own(cluster: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    await cluster.create(PODS, {**pod(namespace, "a"), "status": {"phase": "Succeeded"}})
    both = {"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"}}

    born = await cluster.get(WHOLE_PODS, key)
    through_the_object = await cluster.patch(WHOLE_PODS, key, {"status": {"phase": "Running"}})
    through_its_status = await cluster.patch(WHOLE_PODS, key, both, subresource="status")

    assert born["status"]["phase"] == "Pending"
    assert through_the_object["status"]["phase"] == "Pending"
    assert through_its_status["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in through_its_status["spec"]


async def test_a_pods_spec_is_mostly_fixed(cluster: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    made = await cluster.create(WHOLE_PODS, pod(namespace, "a"))
    container = made["spec"]["containers"][0]

    renamed = await cluster.patch(WHOLE_PODS, key, {"spec": {"containers": [{**container, "image": "other:2"}]}})
    with pytest.raises(Invalid, match="pod updates may not change fields other than"):
        await cluster.patch(PODS, key, {"spec": {"restartPolicy": "Never"}})
    with pytest.raises(Invalid, match="pod updates may not add or remove containers"):
        await cluster.patch(PODS, key, {"spec": {"containers": [container, {**container, "name": "two"}]}})

    assert renamed["spec"]["containers"][0]["image"] == "other:2"


async def test_a_pod_that_no_node_has_goes_at_once(cluster: Client, namespace: str) -> None:
    await cluster.create(PODS, pod(namespace, "a"))

    await cluster.delete(PODS, Key(namespace, "a"))

    with pytest.raises(NotFound):
        await cluster.get(PODS, Key(namespace, "a"))


async def test_a_pod_on_a_node_stays_for_its_grace(cluster: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    await cluster.create(PODS, pod(namespace, "a", nodeName="one", terminationGracePeriodSeconds=40))

    await cluster.delete(PODS, key)
    first = (await cluster.get(PODS, key)).metadata
    await cluster.delete(PODS, key, DeleteOptions(grace_period_seconds=10))
    second = (await cluster.get(PODS, key)).metadata
    await cluster.delete(PODS, key, DeleteOptions(grace_period_seconds=300))
    third = (await cluster.get(PODS, key)).metadata
    await cluster.delete(PODS, key, DeleteOptions(grace_period_seconds=0))

    assert (first.deletion_grace_period_seconds, second.deletion_grace_period_seconds) == (40, 10)
    assert first.deletion_timestamp is not None
    assert second.deletion_timestamp is not None
    assert first.deletion_timestamp - second.deletion_timestamp <= dt.timedelta(seconds=30)
    assert third == second
    with pytest.raises(NotFound):
        await cluster.get(PODS, key)


async def test_a_finished_pod_needs_no_grace(cluster: Client, namespace: str) -> None:
    key = Key(namespace, "a")
    await cluster.create(PODS, pod(namespace, "a", nodeName="one"))
    await cluster.patch(PODS, key, {"status": {"phase": "Failed"}}, subresource="status")

    await cluster.delete(PODS, key)

    with pytest.raises(NotFound):
        await cluster.get(PODS, key)


async def test_a_headless_service_keeps_no_address(cluster: Client, namespace: str) -> None:
    body = {
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 2222, "name": "tf"}]},
    }

    made = await cluster.create(SERVICES.with_model(dict), body)

    assert made["spec"]["clusterIP"] == "None"
    assert made["spec"]["type"] == "ClusterIP"
    assert made["spec"]["ports"] == [{"port": 2222, "name": "tf", "protocol": "TCP", "targetPort": 2222}]


async def test_a_services_name_may_begin_with_a_digit_but_not_with_a_hyphen(cluster: Client, namespace: str) -> None:
    """Before Kubernetes 1.37 it begins with a letter."""
    ports = {"ports": [{"port": 1}]}

    await cluster.create(SERVICES, {"metadata": {"name": "1a", "namespace": namespace}, "spec": ports})
    with pytest.raises(Invalid, match="a lowercase RFC 1123 label must consist of"):
        await cluster.create(SERVICES, {"metadata": {"name": "-a", "namespace": namespace}, "spec": ports})


async def test_a_secrets_plain_text_is_stored_as_data(cluster: Client, namespace: str) -> None:
    body = {"metadata": {"name": "a", "namespace": namespace}, "data": {"x": "eA=="}, "stringData": {"y": "y"}}

    made = await cluster.create(SECRETS.with_model(dict), body)

    assert made["data"] == {"x": "eA==", "y": "eQ=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


async def test_an_update_that_says_no_type_of_a_secret_means_opaque(cluster: Client, namespace: str) -> None:
    for name, kind in (("plain", "Opaque"), ("own", "example.com/own")):
        await cluster.create(
            SECRETS.with_model(dict), {"metadata": {"name": name, "namespace": namespace}, "type": kind}
        )

    update = {"type": None, "stringData": {"y": "y"}}
    changed = await cluster.patch(SECRETS.with_model(dict), Key(namespace, "plain"), update)

    assert (changed["type"], changed["data"]) == ("Opaque", {"y": "eQ=="})
    with pytest.raises(Invalid, match='type: Invalid value: "Opaque": field is immutable'):
        await cluster.patch(SECRETS.with_model(dict), Key(namespace, "own"), update)


async def test_a_node_has_no_namespace_and_keeps_its_status(cluster: Client, namespace: str) -> None:
    name = f"node-of-{namespace}"
    made = await cluster.create(NODES, {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}})

    assert made.status.capacity == {"cpu": "4"}
    assert made.metadata.namespace == ""
    await cluster.patch(NODES, Key("", name), {"spec": {"unschedulable": True}})
    found = await cluster.list(NODES, Selector(field_selector="spec.unschedulable=true"))
    assert name in {one.metadata.name for one in found.items}
    await cluster.delete(NODES, Key("", name))


async def test_a_custom_object_is_pruned_defaulted_and_kept(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    body = gadget(gadgets, namespace, "a", replicas=2, unknown="x", free={"any": [1, {"thing": None}]})

    made = await cluster.create(gadgets, body)

    assert made["spec"] == {"replicas": 2, "colour": "green", "free": {"any": [1, {"thing": None}]}}
    assert made["metadata"]["generation"] == 1


async def test_a_custom_object_that_breaks_its_schema_is_invalid(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    with pytest.raises(Invalid) as caught:
        await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas="two", mode="odd"))

    messages = {cause["field"]: cause["message"] for cause in caught.value.causes if cause["field"].startswith("spec")}
    assert messages == {
        "spec.replicas": 'Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        "spec.mode": 'Unsupported value: "odd": supported values: "fast", "slow"',
    }


async def test_only_the_spec_moves_the_generation(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    key = Key(namespace, "a")
    await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))

    labelled = await cluster.patch(gadgets, key, {"metadata": {"labels": {"a": "b"}}})
    found = await cluster.patch(gadgets, key, {"status": {"replicas": 1}}, subresource="status")
    grown = await cluster.patch(gadgets, key, {"spec": {"replicas": 2}})

    assert [one["metadata"]["generation"] for one in (labelled, found, grown)] == [1, 1, 2]


async def test_a_custom_status_is_written_apart(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    key = Key(namespace, "a")
    await cluster.create(gadgets, {**gadget(gadgets, namespace, "a", replicas=1), "status": {"replicas": 9}})
    everything = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 7}, "status": {"replicas": 3, "note": "x"}}

    born = await cluster.get(gadgets, key)
    found = await cluster.patch(gadgets, key, everything, subresource="status")
    changed = await cluster.patch(gadgets, key, {"spec": {"replicas": 2}, "status": {"replicas": 5}})

    assert "status" not in born
    assert found["status"] == {"replicas": 3, "note": "x"}
    assert found["spec"]["replicas"] == 1
    assert "labels" not in found["metadata"]
    assert (changed["spec"]["replicas"], changed["status"]["replicas"]) == (2, 3)


async def test_a_scale_reads_and_writes_the_objects_own_fields(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    key = Key(namespace, "a")
    await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))
    await cluster.patch(gadgets, key, {"status": {"replicas": 1}}, subresource="status")

    scaled = await cluster.patch(gadgets, key, {"spec": {"replicas": 4}}, subresource="scale")
    read = await cluster.get(gadgets, key)

    assert (scaled["kind"], scaled["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scaled["spec"]["replicas"], scaled["status"]["replicas"]) == (4, 1)
    assert read["spec"]["replicas"] == 4
    assert read["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (
            {"a": 1},
            "0: .status.replicas accessor error: map[a:1] is of the type map[string]interface {}, expected int64",
        ),
        ([1, "x"], "0: .status.replicas accessor error: [1 x] is of the type []interface {}, expected int64"),
        (-1, "-1: should be a non-negative integer"),
    ],
)
async def test_what_a_scale_points_to_must_be_a_number_on_every_write(
    cluster: Client, namespace: str, gadgets: Gadgets, replicas: object, message: str
) -> None:
    await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))

    patch = {"status": {"replicas": replicas}}
    with pytest.raises(Invalid) as caught:
        await cluster.patch(gadgets, Key(namespace, "a"), patch, subresource="status")

    causes = [(cause["field"], cause["message"]) for cause in caught.value.causes]
    assert causes == [(".status.replicas", f"Invalid value: {message}")]


async def test_an_object_is_read_in_every_served_version(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    key, other = Key(namespace, "a"), older(gadgets)
    await cluster.create(gadgets, gadget(gadgets, namespace, "a", replicas=1))

    read = await cluster.get(other, key)
    listed = (await cluster.list(other, Selector(namespace))).items
    patched = await cluster.patch(other, key, {"spec": {"replicas": 2}})

    assert read["apiVersion"] == listed[0]["apiVersion"] == patched["apiVersion"] == other.api_version
    assert read["metadata"]["uid"] == patched["metadata"]["uid"]
    assert (await cluster.get(gadgets, key))["apiVersion"] == gadgets.api_version


async def test_an_object_is_watched_in_every_served_version(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    other = older(gadgets)
    since = (await cluster.list(other, Selector(namespace))).resource_version

    async with watching(cluster, other, Selector(namespace), since) as seen:
        await cluster.create(gadgets, gadget(gadgets, namespace, "a"))
        kind, thing = await seen.next()

    assert (kind, thing["apiVersion"]) == ("ADDED", other.api_version)


async def test_the_version_of_a_write_is_noted(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    made = await cluster.create(older(gadgets), gadget(older(gadgets), namespace, "a", replicas=1))

    assert [entry["apiVersion"] for entry in made["metadata"]["managedFields"]] == [older(gadgets).api_version]


async def test_a_definition_is_named_by_what_it_defines(cluster: Client, namespace: str) -> None:
    body = definition(f"{namespace}.example.com")
    body["metadata"]["name"] = "something.else"

    with pytest.raises(Invalid, match=r'must be spec.names.plural\+"."\+spec.group'):
        await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, body)


async def test_a_schema_that_is_not_structural_is_refused(cluster: Client, namespace: str) -> None:
    body = definition(f"{namespace}.example.com")
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {"properties": {"a": {}}}

    with pytest.raises(Invalid, match="must not be empty for specified object fields"):
        await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, body)


@pytest.mark.parametrize(
    "said",
    [{"description": "Standard."}, {"properties": {"labels": {"type": "object"}}}, {"maxProperties": 3}],
    ids=str,
)
async def test_a_schema_may_say_of_metadata_what_its_names_are_and_no_more(
    cluster: Client, namespace: str, said: Json
) -> None:
    body = definition(f"{namespace}.example.com")
    properties = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["metadata"] = {"type": "object", **said}

    with pytest.raises(Invalid, match="must not specify anything other than name and generateName"):
        await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, body)

    properties["metadata"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}
    await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, body)
    await cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, Key("", body["metadata"]["name"]))


async def test_a_custom_object_of_another_version_or_kind_is_refused(
    cluster: Client, namespace: str, gadgets: Gadgets
) -> None:
    body = gadget(gadgets, namespace, "a")

    with pytest.raises(BadRequest):
        await cluster.create(gadgets, {**body, "apiVersion": f"{gadgets.group}/v7"})
    with pytest.raises(ApiError):
        await cluster.create(gadgets, {**body, "kind": "Widget"})


async def test_a_custom_kind_serves_only_what_it_has(cluster: Client, namespace: str, gadgets: Gadgets) -> None:
    unknown = Resource(group=gadgets.group, version="v9", plural="gadgets", kind="Gadget", model=dict)

    with pytest.raises(NotFound):
        await cluster.list(unknown, Selector(namespace))
