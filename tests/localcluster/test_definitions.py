from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tarragon.client.errors import ApiError, Invalid, NotFound
from tarragon.kube.codec import decode
from tarragon.localcluster.kinds.registry import PrinterColumn, ScalePaths
from tests.localcluster.builders import CRDS, WIDGETS, ApiClient, Json, definition, opened, version, widget

NAME = "widgets.example.com"


def conditions(thing: Json) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in thing["status"]["conditions"]}


async def test_a_kind_is_served_as_soon_as_it_is_defined(asking: ApiClient) -> None:
    created = await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a", spec={"x": 1}))

    assert conditions(created) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert created["status"]["acceptedNames"]["kind"] == "Widget"
    assert created["status"]["storedVersions"] == ["v1"]
    assert created["spec"]["names"] | {"singular": "widget", "listKind": "WidgetList"} == created["spec"]["names"]
    assert asking.names(WIDGETS) == ["a"]


async def test_a_kind_is_still_served_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as api:
        await ApiClient(api).create(CRDS, definition())
        await ApiClient(api).create(WIDGETS, widget("a"))

    async with opened(tmp_path / "store.db") as api:
        assert ApiClient(api).names(WIDGETS) == ["a"]


async def test_the_registry_knows_everything_that_discovery_needs(asking: ApiClient) -> None:
    before = asking.api.registry.generation
    scale = {
        "specReplicasPath": ".spec.a.replicas",
        "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".status.s",
    }
    columns = [{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1}]
    first = version(
        "v1beta1", stored=False, subresources={"status": {}, "scale": scale}, additionalPrinterColumns=columns
    )
    await asking.create(CRDS, definition(versions=[first, version("v1")], shortNames=["wd"], categories=["all"]))

    kinds = [kind for kind in asking.api.registry if kind.full_name == NAME]
    assert asking.api.registry.generation > before
    assert [kind.version for kind in kinds] == ["v1", "v1beta1"]
    assert [kind.subresources for kind in kinds] == [(), ("scale", "status")]
    assert kinds[1].scale == ScalePaths(
        spec_replicas=("spec", "a", "replicas"), status_replicas=("status", "n"), label_selector=("status", "s")
    )
    assert kinds[1].printer_columns == (
        PrinterColumn(name="Phase", type="string", json_path=".status.phase", priority=1),
    )
    assert {(kind.storage_version, kind.short_names, kind.categories) for kind in kinds} == {("v1", ("wd",), ("all",))}
    assert all(kind.is_custom and kind.openapi for kind in kinds)


async def test_versions_come_in_kubernetes_own_order(asking: ApiClient) -> None:
    wanted = ["v10", "v2", "v1", "v3beta1", "v1beta2", "v1beta1", "v12alpha1", "v1alpha2", "foo1", "foo10"]
    shuffled = random.Random(1).sample(wanted, len(wanted))
    await asking.create(CRDS, definition(versions=[version(name, stored=name == "v1") for name in shuffled]))

    assert [kind.version for kind in asking.api.registry if kind.full_name == NAME] == wanted


async def test_a_taken_name_is_not_accepted_until_it_is_free(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    second = await asking.create(CRDS, definition("gadgets", kind="Widget", singular="gadget", listKind="GadgetList"))
    gadgets = ("example.com", "v1", "gadgets")

    assert conditions(second) == {
        "NamesAccepted": ("False", "KindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    with pytest.raises(NotFound):
        asking.target(gadgets)

    await asking.delete(CRDS, NAME)

    assert conditions(asking.get(CRDS, "gadgets.example.com"))["Established"][0] == "True"
    assert asking.names(gadgets) == []


async def test_deleting_a_definition_deletes_its_objects(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asyncio.gather(*(asking.create(WIDGETS, widget(f"w{number}")) for number in range(5)))

    await asking.delete(CRDS, NAME)

    with pytest.raises(NotFound):
        asking.target(WIDGETS)
    await asking.create(CRDS, definition())
    assert asking.names(WIDGETS) == []


async def test_a_definition_waits_for_the_finalizers_of_its_objects(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    kept = widget("kept")
    kept["metadata"]["finalizers"] = ["example.com/later"]
    await asking.create(WIDGETS, kept)
    await asking.create(WIDGETS, widget("free"))

    ending = await asking.delete(CRDS, NAME)
    again = await asking.delete(CRDS, NAME)

    assert conditions(ending)["Terminating"] == ("True", "InstanceDeletionInProgress")
    assert ending["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    assert asking.names(WIDGETS) == ["kept"]
    assert "deletionTimestamp" in asking.get(WIDGETS, "kept")["metadata"]
    with pytest.raises(ApiError, match="create not allowed while custom resource definition is terminating") as caught:
        await asking.create(WIDGETS, widget("new"))
    assert caught.value.code == 405

    await asking.patch(WIDGETS, "kept", {"metadata": {"finalizers": None}})

    with pytest.raises(NotFound):
        asking.get(CRDS, NAME)
    with pytest.raises(NotFound):
        asking.target(WIDGETS)


async def test_objects_outlive_a_version_that_is_no_longer_served(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a"))
    old = {**version("v1", stored=False), "served": False}

    changed = await asking.patch(CRDS, NAME, {"spec": {"versions": [version("v2"), old]}})

    with pytest.raises(NotFound):
        asking.target(WIDGETS)
    assert asking.get(("example.com", "v2", "widgets"), "a")["apiVersion"] == "example.com/v2"
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    assert changed["metadata"]["generation"] == 2


async def test_an_update_without_a_difference_changes_nothing(asking: ApiClient) -> None:
    created = await asking.create(CRDS, definition())

    patched = await asking.patch(CRDS, NAME, {"spec": {"scope": "Namespaced"}})

    assert patched == created


async def test_a_version_that_may_have_stored_objects_cannot_be_dropped(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())

    with pytest.raises(
        Invalid, match=r"status.storedVersions\[0\]: Invalid value: \"v1\": must appear in spec.versions"
    ):
        await asking.patch(CRDS, NAME, {"spec": {"versions": [version("v2")]}})


async def test_a_new_schema_applies_to_the_next_write(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a", spec={"size": "large"}))
    strict = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }

    await asking.patch(CRDS, NAME, {"spec": {"versions": [version("v1", schema=strict)]}})

    assert asking.get(WIDGETS, "a")["spec"] == {"size": "large"}
    with pytest.raises(Invalid, match="must be of type integer"):
        await asking.patch(WIDGETS, "a", {"metadata": {"labels": {"a": "b"}}})
    assert (await asking.patch(WIDGETS, "a", {"spec": {"size": 3}}))["spec"] == {"size": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "Global"}, 'spec.scope: Unsupported value: "Global"'),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        ({"versions": [version("v1"), version("v2")]}, "must have exactly one version marked as storage version"),
        ({"versions": [{**version("v1"), "schema": None}]}, "schemas are required"),
        ({"versions": [{**version("v1"), "served": False}]}, "must have at least one version served"),
        ({"versions": [version("V1")]}, r"spec.versions\[0\].name"),
        ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.strategy: Unsupported value"),
        ({"group": "Ex ample"}, "spec.group"),
        ({"names": {"plural": "widgets", "kind": "two words"}}, "spec.names.kind"),
        ({"versions": [version("v1", schema={"type": "string"})]}, "must be object at the root"),
        (
            {"versions": [version("v1", subresources={"scale": {"specReplicasPath": "spec.x"}})]},
            "should be a json path under .spec",
        ),
        (
            {"versions": [version("v1", additionalPrinterColumns=[{"name": "x", "type": "colour", "jsonPath": ".a"}])]},
            'Unsupported value: "colour"',
        ),
    ],
)
async def test_a_bad_definition_is_invalid(asking: ApiClient, change: dict[str, Any], message: str) -> None:
    body = definition()
    body["spec"] |= change

    with pytest.raises(Invalid, match=message):
        await asking.create(CRDS, body)


async def test_the_names_and_scope_of_a_definition_cannot_change(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())

    for change in ({"scope": "Cluster"}, {"names": {"kind": "Other"}}):
        with pytest.raises(Invalid, match="field is immutable"):
            await asking.patch(CRDS, NAME, {"spec": change})


async def test_a_scale_with_missing_paths_cannot_be_read_but_can_be_written(asking: ApiClient) -> None:
    scale = {"specReplicasPath": ".spec.workers.replicas", "statusReplicasPath": ".status.replicas"}
    await asking.create(CRDS, definition(versions=[version("v1", subresources={"scale": scale})]))
    await asking.create(WIDGETS, widget("a"))

    with pytest.raises(ApiError, match=r'the spec replicas field "\.spec\.workers\.replicas" does not exist') as caught:
        asking.api.get(asking.target(WIDGETS, "a", "scale"))
    written = await asking.patch(WIDGETS, "a", {"spec": {"replicas": 3}}, subresource="scale")
    put = await asking.update(WIDGETS, {"metadata": {"name": "a"}, "spec": {"replicas": 4}}, "scale")

    assert caught.value.code == 500
    assert (written["spec"], put["spec"]) == ({"replicas": 3}, {"replicas": 4})
    assert asking.get(WIDGETS, "a")["spec"] == {"workers": {"replicas": 4}}


async def test_a_definition_with_cel_rules_is_stored_with_a_warning(asking: ApiClient) -> None:
    rules = {"type": "object", "x-kubernetes-validations": [{"rule": "self.replicas > 0"}]}
    schema = {"type": "object", "properties": {"spec": {**rules, "properties": {"replicas": {"type": "integer"}}}}}

    body = definition(versions=[version("v1", schema=schema)])
    written = await asking.api.create(asking.target(CRDS), body)

    [warning] = written.warnings
    assert warning.startswith("spec.versions[0].schema: x-kubernetes-validations is stored, but not enforced")


async def test_objects_stored_under_an_older_schema_are_read_with_the_new_one(tmp_path: Path) -> None:
    def schema(**fields: Json) -> Json:
        return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}

    text = {"type": "string"}
    async with opened(tmp_path / "store.db") as api:
        asking = ApiClient(api)
        await asking.create(CRDS, definition(versions=[version("v1", schema=schema(old=text, kept=text))]))
        await asking.create(WIDGETS, widget("w", spec={"old": "a", "kept": "b"}))
        changed = [version("v1", schema=schema(kept=text, new={**text, "default": "c"}))]
        await asking.patch(CRDS, "widgets.example.com", {"spec": {"versions": changed}})

        assert asking.get(WIDGETS, "w")["spec"] == {"kept": "b", "new": "c"}
        await asking.create(WIDGETS, widget("later", spec={"kept": "d"}))

    async with opened(tmp_path / "store.db") as api:
        page = api.list(api.target(WIDGETS, "default"))
        assert [decode(one, dict)["spec"] for one in page.items] == [
            {"kept": "d", "new": "c"},
            {"kept": "b", "new": "c"},
        ]
