from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, Unavailable
from tarragon.client.port import LogOptions
from tarragon.localcluster.kinds.go_types import DecodeError, decode_in_place, go_type_of
from tarragon.localcluster.validation.pods import qos_class
from tests.localcluster.builders import PODS, ApiClient, Json, pod

PRIORITIES = ("scheduling.k8s.io", "v1", "priorityclasses")


async def test_a_pod_is_bound_to_a_node_only_once(asking: ApiClient) -> None:
    await asking.create(PODS, pod("a"))
    target = asking.target(PODS, "a", "binding")
    binding = {"metadata": {"name": "a", "annotations": {"gpu": "0"}}, "target": {"kind": "Node", "name": "one"}}

    written = await asking.api.create(target, binding)
    bound = asking.get(PODS, "a")

    assert written.created
    assert bound["spec"]["nodeName"] == "one"
    assert bound["metadata"]["annotations"] == {"gpu": "0"}
    assert [(one["type"], one["status"]) for one in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    with pytest.raises(Conflict, match='pod a is already assigned to node "one"'):
        await asking.api.create(target, binding)


async def test_a_pod_with_gates_is_bound_to_no_node(asking: ApiClient) -> None:
    await asking.create(PODS, pod("a", schedulingGates=[{"name": "hold"}]))

    with pytest.raises(Conflict, match=r"pod a has non-empty \.spec\.schedulingGates"):
        await asking.api.create(asking.target(PODS, "a", "binding"), {"target": {"kind": "Node", "name": "one"}})


async def test_a_pod_that_can_not_be_resized_says_why(asking: ApiClient) -> None:
    with pytest.raises(NotFound, match="processes, whose limits no kernel enforces"):
        asking.target(PODS, "a", "resize")


async def test_a_binding_needs_a_target_and_a_pod(asking: ApiClient) -> None:
    await asking.create(PODS, pod("a"))

    with pytest.raises(Invalid, match=r"target\.name: Required value"):
        await asking.api.create(asking.target(PODS, "a", "binding"), {"target": {"kind": "Node"}})
    with pytest.raises(NotFound):
        await asking.api.create(asking.target(PODS, "b", "binding"), {"target": {"name": "one"}})


async def running(asking: ApiClient, name: str, *, ready: str = "True") -> None:
    body = pod(name, nodeName="one")
    body["metadata"]["labels"] = {"app": "x"}
    await asking.create(PODS, body)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    await asking.patch(PODS, name, {"status": status}, subresource="status")


async def test_an_eviction_has_delete_options(asking: ApiClient) -> None:
    await running(asking, "a")
    target = asking.target(PODS, "a", "eviction")

    with pytest.raises(Conflict):
        await asking.api.create(target, {"deleteOptions": {"preconditions": {"uid": "other"}}})
    await asking.api.create(target, {"deleteOptions": {"gracePeriodSeconds": 7}})

    assert asking.get(PODS, "a")["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_dry_run_of_an_eviction_evicts_nothing(asking: ApiClient) -> None:
    await running(asking, "a")
    target = asking.target(PODS, "a", "eviction")

    await asking.api.create(target, {"deleteOptions": {"dryRun": ["All"]}})
    with pytest.raises(Invalid):
        await asking.api.create(target, {"deleteOptions": {"dryRun": ["Some"]}})

    assert "deletionTimestamp" not in asking.get(PODS, "a")["metadata"]


async def test_a_pod_gets_the_value_of_its_priority_class(asking: ApiClient) -> None:
    await asking.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 10, "preemptionPolicy": "Never"})

    created = await asking.create(PODS, pod("a", priorityClassName="high"))
    plain = await asking.create(PODS, pod("b"))

    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (10, "Never")
    assert plain["spec"]["priority"] == 0
    with pytest.raises(Forbidden, match="no PriorityClass with name nothing was found"):
        await asking.create(PODS, pod("c", priorityClassName="nothing"))


async def test_the_default_priority_class_is_for_pods_that_name_none(asking: ApiClient) -> None:
    await asking.create(PRIORITIES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})

    created = await asking.create(PODS, pod("a"))

    assert (created["spec"]["priority"], created["spec"]["priorityClassName"]) == (5, "usual")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"limits": {"nvidia.com/gpu": "1"}}], "BestEffort"),
    ],
)
def test_the_quality_of_service_follows_cpu_and_memory(resources: list[Json], expected: str) -> None:
    assert qos_class({"containers": [{"resources": one} for one in resources]}) == expected


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": []}, "spec.containers", "Required value"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "Unsupported value"),
        (
            {"terminationGracePeriodSeconds": -1},
            "spec.terminationGracePeriodSeconds",
            "must be greater than or equal to 0",
        ),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "must be between 1 and"),
        ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector", "name part must consist of"),
        ({"hostname": "Not_A_Label"}, "spec.hostname", "a lowercase RFC 1123 label"),
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.volumes[1].name", 'Duplicate value: "v"'),
        (
            {"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Never"}]},
            "spec.initContainers[0].restartPolicy",
            'supported values: "Always"',
        ),
        (
            {"initContainers": [{"name": "i", "image": "i", "readinessProbe": {"tcpSocket": {"port": 1}}}]},
            "spec.initContainers[0].readinessProbe",
            "may not be set for init containers without restartPolicy=Always",
        ),
    ],
)
async def test_an_invalid_pod_names_the_field(asking: ApiClient, spec: Json, field: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        await asking.create(PODS, pod("a", **spec))

    assert [(cause["field"], message in cause["message"]) for cause in caught.value.causes] == [(field, True)]


@pytest.mark.parametrize(
    ("container", "field", "message"),
    [
        ({"name": "Upper"}, "name", "a lowercase RFC 1123 label"),
        ({"image": ""}, "image", "Required value"),
        ({"imagePullPolicy": "Maybe"}, "imagePullPolicy", "Unsupported value"),
        ({"ports": [{"containerPort": 70000}]}, "ports[0].containerPort", "must be between 1 and 65535"),
        ({"env": [{"name": "1=x"}]}, "env[0].name", "a valid environment variable name"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}, "volumeMounts[0].name", "Not found"),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "resources.requests",
            "must be less than or equal to cpu limit",
        ),
        ({"restartPolicy": "Always"}, "restartPolicy", "may not be set for non-init containers"),
        (
            {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}},
            "lifecycle.preStop.sleep",
            "must be greater than 0 and less than terminationGracePeriodSeconds (30)",
        ),
        (
            {"readinessProbe": {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 1}},
            "readinessProbe.terminationGracePeriodSeconds",
            "must not be set for readinessProbes",
        ),
    ],
)
async def test_an_invalid_container_names_the_field(
    asking: ApiClient, container: Json, field: str, message: str
) -> None:
    body = pod("a")
    body["spec"]["containers"][0] |= container

    with pytest.raises(Invalid) as caught:
        await asking.create(PODS, body)

    causes = [(cause["field"], message in cause["message"]) for cause in caught.value.causes]
    assert causes == [(f"spec.containers[0].{field}", True)]


async def test_an_update_may_only_shorten_the_deadline_and_add_tolerations(asking: ApiClient) -> None:
    body = pod("a", activeDeadlineSeconds=10, tolerations=[{"key": "a", "operator": "Exists"}])
    created = await asking.create(PODS, body)

    await asking.patch(PODS, "a", {"spec": {"activeDeadlineSeconds": 5}})
    more = [*created["spec"]["tolerations"], {"key": "b", "operator": "Exists"}]
    grown = await asking.patch(PODS, "a", {"spec": {"tolerations": more}})

    assert grown["spec"]["tolerations"] == more
    forbidden: list[Json] = [{"activeDeadlineSeconds": 6}, {"activeDeadlineSeconds": None}, {"tolerations": []}]
    for change in forbidden:
        with pytest.raises(Invalid):
            await asking.patch(PODS, "a", {"spec": change})


async def test_logs_need_a_kubelet_and_a_pod(asking: ApiClient) -> None:
    await asking.create(PODS, pod("a", nodeName="one"))

    with pytest.raises(Unavailable, match="no kubelet runs in this server"):
        asking.api.pod_log(asking.target(PODS, "a", "log"))
    with pytest.raises(NotFound):
        asking.api.pod_log(asking.target(PODS, "b", "log"))


async def test_logs_come_from_the_kubelet(asking: ApiClient) -> None:
    class Logs:
        async def read_log(self, pod: Any, options: LogOptions) -> Any:
            yield f"{pod['metadata']['name']} {options.container}".encode()

    await asking.create(PODS, pod("a", nodeName="one"))
    asking.api.pod_logs = Logs()

    chunks = [one async for one in asking.api.pod_log(asking.target(PODS, "a", "log"), LogOptions(container="main"))]

    assert chunks == [b"a main"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"spec": {"containers": "abc"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}},
            "into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels.a of type string",
        ),
        ({"spec": {"priority": 2**40}}, "of type int32"),
        ({"spec": {"hostNetwork": "yes"}}, "of type bool"),
        ({"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}, "quantities must match"),
        ({"metadata": {"creationTimestamp": "yesterday"}}, 'parsing time "yesterday"'),
        ({"metadata": {"ownerReferences": [1]}}, "cannot unmarshal number"),
    ],
)
def test_a_wrong_type_is_reported_in_the_words_of_gos_decoder(body: Json, words: str) -> None:
    shape = go_type_of("", "v1", "Pod")
    assert shape is not None

    with pytest.raises(DecodeError) as caught:
        decode_in_place(shape, body)

    assert words in str(caught.value)


def test_decoding_drops_nulls_and_unknown_fields_and_writes_quantities_as_text() -> None:
    shape = go_type_of("", "v1", "Pod")
    assert shape is not None
    body: Json = {
        "metadata": {"name": "a", "creationTimestamp": None, "nmae": "b"},
        "spec": {
            "containers": [{"name": "a", "env": None, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}],
            "affinity": {"nodeAffinity": {"typo": 1}},
        },
    }

    unknown = decode_in_place(shape, body)

    assert sorted(unknown) == ["metadata.nmae", "spec.affinity.nodeAffinity.typo"]
    assert body == {
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            "affinity": {"nodeAffinity": {}},
        },
    }


async def test_a_pod_of_wrong_types_is_a_bad_request_in_the_servers_words(asking: ApiClient) -> None:
    with pytest.raises(BadRequest, match='Pod in version "v1" cannot be handled as a Pod: json: cannot'):
        await asking.create(PODS, pod("a", nodeName=5))
