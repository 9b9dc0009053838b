from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import BadRequest, Invalid
from tarragon.client.port import Client
from tarragon.kube.core import LEASES, PERSISTENT_VOLUME_CLAIMS, SERVICES
from tests.contract.objects import WHOLE_PODS, Json, pod

SPELLINGS = {
    "0": "0",
    "1": "1",
    "0.5": "500m",
    "1000m": "1",
    "1500m": "1500m",
    "1.5": "1500m",
    "1000": "1k",
    "1000000": "1M",
    "1024": "1024",
    "1024Mi": "1Gi",
    "1.5Gi": "1536Mi",
    "0.5Ki": "512",
    "1Ki": "1Ki",
    "1023Ki": "1023Ki",
    "1025Ki": "1025Ki",
    "1e3": "1e3",
    "1e4": "10e3",
    "12e6": "12e6",
    "1E": "1E",
    "100G": "100G",
    "1000Gi": "1000Gi",
    "0.1": "100m",
    "0.0001": "100u",
    "1n": "1n",
    "0.1n": "1n",
    ".5": "500m",
    "0.1Ki": "102400m",
}


async def test_quantities_come_back_in_their_one_spelling(cluster: Client, namespace: str) -> None:
    volumes = [{"name": f"v{n}", "emptyDir": {"sizeLimit": text}} for n, text in enumerate(SPELLINGS)]

    made = await cluster.create(WHOLE_PODS, pod(namespace, "a", schedulerName="nobody", volumes=volumes))

    limits = [volume["emptyDir"]["sizeLimit"] for volume in made["spec"]["volumes"] if "emptyDir" in volume]
    assert dict(zip(SPELLINGS, limits, strict=True)) == SPELLINGS


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1GiB", "--1", "1e", "1.2.3", "0x10", True, [], {}])
async def test_what_is_no_quantity_is_a_bad_request(cluster: Client, namespace: str, text: object) -> None:
    with pytest.raises(BadRequest, match="cannot be handled as a Pod"):
        await cluster.create(WHOLE_PODS, _with({"resources": {"limits": {"cpu": text}}})(namespace))


def _with(container: Json, **spec: Any) -> Any:
    def body(namespace: str) -> Json:
        made = pod(namespace, "a", schedulerName="nobody", **spec)
        made["spec"]["containers"][0] |= container
        return made

    return body


def _volume(**source: Any) -> Any:
    return _with({}, volumes=[{"name": "v", **source}])


REFUSED = {
    "a device without a limit": (
        _with({"resources": {"requests": {"nvidia.com/gpu": 1}}}),
        ("spec.containers[0].resources.limits", "Limit must be set for non overcommitable resources"),
    ),
    "half a device": (
        _with({"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}),
        ("spec.containers[0].resources.limits[nvidia.com/gpu]", "must be an integer"),
    ),
    "fewer devices asked for than allowed": (
        _with({"resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}}),
        ("spec.containers[0].resources.requests", "must be equal to nvidia.com/gpu limit"),
    ),
    "a resource of nobody's": (
        _with({"resources": {"limits": {"gpu": 1}}}),
        ("spec.containers[0].resources.limits[gpu]", "must be a standard resource for containers"),
    ),
    "more asked for than allowed": (
        _with({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}}),
        ("spec.containers[0].resources.requests", "must be less than or equal to cpu limit"),
    ),
    "an image of blanks": (
        _with({"image": " i"}),
        ("spec.containers[0].image", "must not have leading or trailing whitespace"),
    ),
    "an unknown place for last words": (
        _with({"terminationMessagePolicy": "x"}),
        ("spec.containers[0].terminationMessagePolicy", 'Unsupported value: "x"'),
    ),
    "a port's name too long": (
        _with({"ports": [{"containerPort": 1, "name": "a" * 16}]}),
        ("spec.containers[0].ports[0].name", "must be no more than 15 characters"),
    ),
    "a port's name in capitals": (
        _with({"ports": [{"containerPort": 1, "name": "HTTP"}]}),
        ("spec.containers[0].ports[0].name", "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
    ),
    "two ports of one name": (
        _with({"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]}),
        ("spec.containers[0].ports[1].name", 'Duplicate value: "a"'),
    ),
    "a probe of nothing": (
        _with({"livenessProbe": {}}),
        ("spec.containers[0].livenessProbe", "must specify a handler type"),
    ),
    "a probe of no port": (
        _with({"readinessProbe": {"httpGet": {"port": 0}}}),
        ("spec.containers[0].readinessProbe.httpGet.port", "must be between 1 and 65535, inclusive"),
    ),
    "a probe into the past": (
        _with({"startupProbe": {"exec": {"command": ["a"]}, "periodSeconds": -1}}),
        ("spec.containers[0].startupProbe.periodSeconds", "must be greater than or equal to 0"),
    ),
    "a probe of two kinds": (
        _with({"livenessProbe": {"tcpSocket": {"port": 1}, "exec": {"command": ["a"]}}}),
        ("spec.containers[0].livenessProbe.tcpSocket", "may not specify more than 1 handler type"),
    ),
    "to be alive twice": (
        _with({"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}}),
        ("spec.containers[0].livenessProbe.successThreshold", "must be 1"),
    ),
    "a command without words": (
        _with({"startupProbe": {"exec": {}}}),
        ("spec.containers[0].startupProbe.exec.command", "Required value"),
    ),
    "a request in no language": (
        _with({"lifecycle": {"preStop": {"httpGet": {"port": 1, "scheme": "FTP"}}}}),
        ("spec.containers[0].lifecycle.preStop.httpGet.scheme", 'supported values: "HTTP", "HTTPS"'),
    ),
    "a header of blanks": (
        _with({"readinessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "a b", "value": "c"}]}}}),
        ("spec.containers[0].readinessProbe.httpGet.httpHeaders", "a valid HTTP header must consist of"),
    ),
    "a hook that does nothing": (
        _with({"lifecycle": {"postStart": {}}}),
        ("spec.containers[0].lifecycle.postStart", "must specify a handler type"),
    ),
    "an init container of a main one's name": (
        _with({}, initContainers=[{"name": "main", "image": "i"}]),
        ("spec.initContainers[0].name", 'Duplicate value: "main"'),
    ),
    "a volume of two kinds": (
        _volume(emptyDir={}, hostPath={"path": "/x"}),
        ("spec.volumes[0].hostPath", "may not specify more than 1 volume type"),
    ),
    "a secret without a name": (_volume(secret={}), ("spec.volumes[0].secret.secretName", "Required value")),
    "a config map without a name": (_volume(configMap={}), ("spec.volumes[0].configMap.name", "Required value")),
    "a claim without a name": (
        _volume(persistentVolumeClaim={}),
        ("spec.volumes[0].persistentVolumeClaim.claimName", "Required value"),
    ),
    "to tolerate something equal to nothing": (
        _with({}, tolerations=[{"operator": "Equal"}]),
        ("spec.tolerations[0].operator", "operator must be Exists when `key` is empty"),
    ),
    "to tolerate whatever has a value": (
        _with({}, tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        ("spec.tolerations[0].operator", "value must be empty when `operator` is 'Exists'"),
    ),
    "to tolerate for a time what does not evict": (
        _with({}, tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]),
        ("spec.tolerations[0].effect", "effect must be 'NoExecute' when `tolerationSeconds` is set"),
    ),
    "no names and no one to ask": (
        _with({}, dnsPolicy="None"),
        ("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"),
    ),
}


@pytest.mark.parametrize("what", list(REFUSED))
async def test_a_pod_that_asks_for_nonsense_is_invalid(cluster: Client, namespace: str, what: str) -> None:
    body, (field, words) = REFUSED[what]

    with pytest.raises(Invalid) as caught:
        await cluster.create(WHOLE_PODS, body(namespace))

    assert any(cause["field"] == field and words in cause["message"] for cause in caught.value.causes)


async def test_what_a_pod_leaves_open_is_filled_in(cluster: Client, namespace: str) -> None:
    container = {
        "ports": [{"containerPort": 80}],
        "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
        "livenessProbe": {"tcpSocket": {"port": 80}},
        "env": [
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "EMPTY", "value": ""},
        ],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    volumes = [
        {"name": "one"},
        {"name": "two", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "three", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "four", "hostPath": {"path": "/x"}},
    ]

    made = await cluster.create(WHOLE_PODS, _with(container, hostNetwork=True, volumes=volumes)(namespace))

    main, filled = made["spec"]["containers"][0], made["spec"]["volumes"]
    assert main["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert main["lifecycle"]["preStop"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}
    probe = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert main["livenessProbe"] == {"tcpSocket": {"port": 80}, **probe}
    assert main["env"][0]["valueFrom"]["resourceFieldRef"] == {"resource": "limits.cpu", "divisor": "0"}
    assert main["env"][1]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name", "apiVersion": "v1"}
    assert main["env"][2] == {"name": "EMPTY"}
    assert main["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}
    assert filled[0]["emptyDir"] == {}
    assert filled[1]["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"
    assert filled[2]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert filled[3]["hostPath"] == {"path": "/x", "type": ""}


SERVICES_REFUSED: dict[str, tuple[Json, str]] = {
    "no name to stand for": ({"type": "ExternalName"}, "spec.externalName"),
    "an unknown protocol": ({"clusterIP": "None", "ports": [{"port": 1, "protocol": "X"}]}, "spec.ports[0].protocol"),
    "a bad target": ({"clusterIP": "None", "ports": [{"port": 1, "targetPort": "X_"}]}, "spec.ports[0].targetPort"),
    "a bad selector": ({"clusterIP": "None", "selector": {"a b": "c"}, "ports": [{"port": 1}]}, "spec.selector"),
}


@pytest.mark.parametrize("what", list(SERVICES_REFUSED))
async def test_a_service_that_asks_for_nonsense_is_invalid(cluster: Client, namespace: str, what: str) -> None:
    spec, field = SERVICES_REFUSED[what]

    with pytest.raises(Invalid) as caught:
        await cluster.create(SERVICES, {"metadata": {"name": "a", "namespace": namespace}, "spec": spec})

    assert field in {cause["field"] for cause in caught.value.causes}


async def test_a_claim_asks_for_more_than_nothing(cluster: Client, namespace: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}

    with pytest.raises(Invalid, match="must be greater than zero"):
        await cluster.create(
            PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "a", "namespace": namespace}, "spec": spec}
        )


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "yesterday"])
async def test_a_lease_is_renewed_to_the_microsecond_in_six_digits(cluster: Client, namespace: str, time: str) -> None:
    body = {"metadata": {"name": "l", "namespace": namespace}, "spec": {"renewTime": time}}

    with pytest.raises(BadRequest, match="cannot be handled as a Lease"):
        await cluster.create(LEASES, body)
