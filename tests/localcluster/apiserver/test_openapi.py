"""The OpenAPI documents contain what kubectl looks for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarragon.kube.codec import decode
from tarragon.localcluster.kinds.openapi import OBJECT_META, REFERENCE, OpenApi, built_in_names, built_in_schemas
from tarragon.localcluster.kinds.registry import KindRegistry, ServedKind

ROOT = Path(__file__).parents[3]


def widgets(version: str = "v1", **spec: Any) -> ServedKind:
    schema = {"type": "object", "description": "A Widget.", "properties": {"spec": {"type": "object", **spec}}}
    return ServedKind(
        group="example.dev", version=version, plural="widgets", kind="Widget", openapi=schema, is_custom=True
    )


async def document(openapi: OpenApi, group: str, version: str = "v1") -> dict[str, Any]:
    built = await openapi.document(group, version)
    assert built is not None
    return decode(built.data, dict)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


@pytest.fixture
def registry() -> KindRegistry:
    registry = KindRegistry()
    registry.set_custom("widgets.example.dev", [widgets()])
    return registry


def test_every_built_in_kind_has_kubernetes_own_schema(registry: KindRegistry) -> None:
    missing = [
        kind.full_name
        for kind in registry
        if not kind.is_custom and (kind.group, kind.version, kind.kind) not in built_in_names()
    ]

    assert missing == ["nodes.metrics.k8s.io", "pods.metrics.k8s.io"]  # which are metrics-server's
    pod = built_in_schemas()["io.k8s.api.core.v1.PodSpec"]
    assert pod["properties"]["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert pod["properties"]["nodeName"]["type"] == "string"


async def test_every_document_contains_all_schemas_that_it_refers_to(registry: KindRegistry) -> None:
    openapi = OpenApi(registry)
    for group, version in {(kind.group, kind.version) for kind in registry}:
        whole = await document(openapi, group, version)
        names = {name.removeprefix(REFERENCE) for name in references(whole)}

        assert names <= whole["components"]["schemas"].keys()


async def test_the_index_lists_every_group_version(registry: KindRegistry) -> None:
    openapi = OpenApi(registry)
    paths = (await openapi.index())["paths"]

    assert {"api/v1", "apis/apiextensions.k8s.io/v1", "apis/example.dev/v1"} <= paths.keys()
    built = await openapi.document("example.dev", "v1")
    assert built is not None
    assert paths["apis/example.dev/v1"]["serverRelativeURL"] == f"/openapi/v3/apis/example.dev/v1?hash={built.hash}"


async def test_writes_accept_field_validation(registry: KindRegistry) -> None:
    # Without this kubectl asks for OpenAPI v2, which has no schemas.
    for group, path in (
        ("", "/api/v1/namespaces/{namespace}/pods/{name}"),
        ("", "/api/v1/nodes/{name}"),
        ("example.dev", "/apis/example.dev/v1/namespaces/{namespace}/widgets/{name}"),
    ):
        patch = (await document(OpenApi(registry), group))["paths"][path]["patch"]

        assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
        assert patch["x-kubernetes-group-version-kind"]["group"] == group
        # kubectl apply asks for OpenAPI v2 when a built-in kind does not list the strategic merge patch.
        assert ("application/strategic-merge-patch+json" in patch["requestBody"]["content"]) == (group == "")


async def test_a_custom_kind_has_the_schema_of_its_definition_and_the_metadata_of_all(registry: KindRegistry) -> None:
    schemas = (await document(OpenApi(registry), "example.dev"))["components"]["schemas"]
    widget = schemas["dev.example.v1.Widget"]

    assert widget["description"] == "A Widget."
    assert widget["x-kubernetes-group-version-kind"] == [{"group": "example.dev", "version": "v1", "kind": "Widget"}]
    assert widget["properties"]["metadata"]["allOf"] == [{"$ref": REFERENCE + OBJECT_META}]
    assert "labels" in schemas[OBJECT_META]["properties"]


async def test_the_hash_changes_with_the_definition_and_with_nothing_else(registry: KindRegistry) -> None:
    openapi = OpenApi(registry)

    async def hashes() -> tuple[str, str]:
        built = await openapi.document("", "v1"), await openapi.document("example.dev", "v1")
        assert built[0] is not None
        assert built[1] is not None
        return built[0].hash, built[1].hash

    core, custom = await hashes()
    registry.set_custom("widgets.example.dev", [widgets(description="changed")])

    assert (await hashes())[0] == core
    assert (await hashes())[1] != custom


async def test_a_group_version_that_is_not_served_has_no_document(registry: KindRegistry) -> None:
    openapi = OpenApi(registry)
    assert await openapi.document("example.dev", "v9") is None
    assert await openapi.document("certificates.k8s.io", "v1") is None

    registry.set_custom("widgets.example.dev", [])
    assert await openapi.document("example.dev", "v1") is None
    assert "apis/example.dev/v1" not in (await openapi.index())["paths"]


async def test_two_versions_of_a_kind_have_two_documents(registry: KindRegistry) -> None:
    registry.set_custom("widgets.example.dev", [widgets("v2", description="new"), widgets("v1")])
    openapi = OpenApi(registry)

    new = (await document(openapi, "example.dev", "v2"))["components"]["schemas"]["dev.example.v2.Widget"]
    old = (await document(openapi, "example.dev", "v1"))["components"]["schemas"]["dev.example.v1.Widget"]
    assert new["properties"]["spec"] == {"type": "object", "description": "new"}
    assert old["properties"]["spec"] == {"type": "object"}


async def test_building_a_document_does_not_block_the_loop(registry: KindRegistry) -> None:
    task = asyncio.ensure_future(OpenApi(registry).index())
    turns = 0
    while not task.done():
        await asyncio.wait({task}, timeout=0)
        turns += 1

    assert turns > 10, "the loop stood still"


@pytest.mark.slow
def test_the_data_file_is_what_its_tool_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kubernetes_validate")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_openapi  # type: ignore[import-not-found]

    assert make_openapi.main(["--check"]) == 0
