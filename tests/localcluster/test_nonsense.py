"""Any malformed body is answered with a Status and a message, and the cluster keeps working."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api.requests import PatchBody, PatchType, WriteOptions
from tests.localcluster.builders import CRDS, PODS, WIDGETS, ApiClient, Json, definition, opened, pod, version, widget

DRY = WriteOptions(dry_run=True)
Path_ = tuple[str, str, str]

SCHEMA = {
    "type": "object",
    "properties": {
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 0, "default": 1},
                "list": {
                    "type": "array",
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}},
                },
                "port": {"x-kubernetes-int-or-string": True},
                "map": {"type": "object", "additionalProperties": {"type": "number"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCALE = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}
DEFINITION = definition(versions=[version("v1", schema=SCHEMA, subresources={"status": {}, "scale": SCALE})])
METADATA = {
    "name": "q",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["example.com/x"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}],
}
FULL_POD = {
    "metadata": METADATA,
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "nothing:1",
                "ports": [{"containerPort": 1, "name": "x"}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}},
                "volumeMounts": [{"name": "v", "mountPath": "/x"}],
                "livenessProbe": {"httpGet": {"port": 80}},
            }
        ],
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "nodeSelector": {"a": "b"},
        "activeDeadlineSeconds": 5,
        "priorityClassName": "system-node-critical",
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
BODIES: list[tuple[Path_, Json]] = [
    (PODS, FULL_POD),
    (WIDGETS, widget("q", spec={"count": 1, "list": [{"k": "v"}], "port": 1, "map": {"a": 1}}, status={"x": 1})),
    (CRDS, {**DEFINITION, "metadata": {"name": "widgets.example.com"}}),
    (
        ("", "v1", "services"),
        {"metadata": METADATA, "spec": {"ports": [{"port": 1, "name": "x"}], "clusterIP": "None"}},
    ),
    (("", "v1", "secrets"), {"metadata": METADATA, "data": {"a": "eA=="}, "stringData": {"b": "c"}, "type": "Opaque"}),
    (("", "v1", "configmaps"), {"metadata": METADATA, "data": {"a": "b"}, "binaryData": {"c": "eA=="}}),
    (("", "v1", "namespaces"), {"metadata": METADATA, "spec": {"finalizers": ["kubernetes"]}}),
    (("", "v1", "nodes"), {"metadata": METADATA, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    (
        ("", "v1", "events"),
        {"metadata": METADATA, "involvedObject": {"namespace": "default", "name": "x"}, "source": {"component": "y"}},
    ),
    (
        ("", "v1", "persistentvolumeclaims"),
        {
            "metadata": METADATA,
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    ),
    (("coordination.k8s.io", "v1", "leases"), {"metadata": METADATA, "spec": {"leaseDurationSeconds": 5}}),
    (("scheduling.k8s.io", "v1", "priorityclasses"), {"metadata": METADATA, "value": 5, "globalDefault": True}),
]


def paths(value: Any) -> Iterator[tuple[str | int, ...]]:
    """The path to every part of a value."""
    steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        yield (step,)
        yield from ((step, *way) for way in paths(child))


def corrupted(body: Json, way: tuple[str | int, ...], nonsense: Any) -> Json:
    """The body with a bad value at one path."""
    copied: Json = decode(encode(body), dict)
    place: Any = copied
    for step in way[:-1]:
        place = place[step]
    place[way[-1]] = nonsense
    return copied


NONSENSE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
    | st.sampled_from(["", "-1", "1.2.3", "0x0", "$patch", "a/b/c", ".", "default", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["", "name", "$patch", "a b", "k"]), inner, max_size=3)
    ),
    max_leaves=6,
)
SPOILED = st.sampled_from(BODIES).flatmap(
    lambda row: st.tuples(st.just(row[0]), st.just(row[1]), st.sampled_from(list(paths(row[1]))), NONSENSE)
)


@settings(max_examples=60)
@given(st.lists(SPOILED, min_size=1, max_size=30))
def test_a_malformed_body_is_rejected_with_a_message_and_breaks_nothing(
    asked: list[tuple[Path_, Json, tuple[str | int, ...], Any]],
) -> None:
    async def ask(folder: Path) -> None:
        async with opened(folder / "store.db") as api:
            asking = ApiClient(api)
            await asking.create(CRDS, DEFINITION)
            await asking.create(PODS, pod("p"))
            for path, body, _, _ in asked:
                await _try(asking, path, body)
            for path, body, way, nonsense in asked:
                await _write_in_every_way(asking, path, corrupted(body, way, nonsense))
            assert asking.get(PODS, "p")["kind"] == "Pod"

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(ask(Path(folder)))


async def _try(asking: ApiClient, path: Path_, body: Json) -> None:
    try:
        await asking.create(path, decode(encode(body), dict))
    except ApiError as error:
        _check_has_message(error)


async def _write_in_every_way(asking: ApiClient, path: Path_, body: Json) -> None:
    """Try every kind of write with the body. Each may be rejected, but only with a Status."""
    name = "widgets.example.com" if path == CRDS else "q"
    target = asking.target(path, name)
    calls = [
        asking.api.create(asking.target(path), decode(encode(body), dict), DRY),
        asking.api.update(target, decode(encode(body), dict), DRY),
        *(asking.api.patch(target, PatchBody(kind, body), DRY) for kind in (PatchType.MERGE, PatchType.STRATEGIC)),
        asking.api.patch(target, PatchBody(PatchType.JSON, [body]), DRY),
        asking.api.patch(target, PatchBody(PatchType.JSON, [{"op": "add", "path": "", "value": body}]), DRY),
    ]
    for subresource in target.served.subresources:
        deeper = asking.target(path, name, subresource)
        calls.append(asking.api.patch(deeper, PatchBody(PatchType.MERGE, body), DRY))
        calls.append(asking.api.create(deeper, decode(encode(body), dict), DRY))
    for call in calls:
        try:
            await call
        except ApiError as error:
            _check_has_message(error)


def _check_has_message(error: ApiError) -> None:
    assert error.status["kind"] == "Status"
    assert error.status["message"]
    assert error.status["code"] in {400, 403, 404, 405, 409, 415, 422, 429, 500}
