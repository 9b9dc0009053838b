from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.errors import ApiError, BadRequest, Invalid
from tarragon.localcluster.api.requests import PatchType
from tarragon.localcluster.apply.strategic import StrategicError, strategic_merge
from tarragon.localcluster.kinds.go_types import go_type_of
from tests.localcluster.builders import CONFIG_MAPS, CRDS, PODS, WIDGETS, ApiClient, config_map, definition, pod, widget

Json = dict[str, Any]
POD = go_type_of("", "v1", "Pod")
NODE = go_type_of("", "v1", "Node")


def merged(target: Json, patch: Json) -> Json:
    assert POD is not None
    return strategic_merge(POD, target, patch)


def containers(*each: Json, **spec: Any) -> Json:
    return {"spec": {"containers": list(each), **spec}}


def test_lists_of_objects_merge_by_their_key() -> None:
    target = containers({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"})
    patch = containers({"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]})

    assert merged(target, patch) == containers(
        {"name": "a", "image": "1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]},
        {"name": "b", "image": "2"},
    )


def test_every_list_has_its_own_key() -> None:
    target = {
        "metadata": {"ownerReferences": [{"uid": "1", "name": "a"}], "finalizers": ["x"]},
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "ports": [{"containerPort": 1, "name": "one"}],
                    "volumeMounts": [{"mountPath": "/a", "name": "v"}],
                    "command": ["old"],
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "a"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }
    patch = {
        "metadata": {"ownerReferences": [{"uid": "2", "name": "b"}], "finalizers": ["y"]},
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "ports": [{"containerPort": 2}],
                    "volumeMounts": [{"mountPath": "/a", "readOnly": True}],
                    "command": ["new"],
                }
            ],
            "tolerations": [{"key": "b"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }

    result = merged(target, patch)

    container = result["spec"]["containers"][0]
    assert [owner["uid"] for owner in result["metadata"]["ownerReferences"]] == ["2", "1"]
    assert result["metadata"]["finalizers"] == ["y", "x"]
    assert container["ports"] == [{"containerPort": 2}, {"containerPort": 1, "name": "one"}]
    assert container["volumeMounts"] == [{"mountPath": "/a", "name": "v", "readOnly": True}]
    assert container["command"] == ["new"]
    assert result["spec"]["tolerations"] == [{"key": "b"}]
    assert result["status"]["conditions"] == [{"type": "Ready", "status": "True"}]


def test_a_patch_changes_neither_of_its_arguments() -> None:
    target = containers({"name": "a", "env": [{"name": "X", "value": "1"}]})
    patch = containers({"name": "a", "env": [{"name": "X", "value": "2"}]})

    merged(target, patch)

    assert target == containers({"name": "a", "env": [{"name": "X", "value": "1"}]})
    assert patch == containers({"name": "a", "env": [{"name": "X", "value": "2"}]})


def test_a_list_item_is_deleted_by_its_key() -> None:
    target = containers({"name": "a"}, {"name": "b"})

    assert merged(target, containers({"name": "a", "$patch": "delete"})) == containers({"name": "b"})
    assert merged(target, containers({"name": "z", "$patch": "delete"})) == target


def test_a_list_or_an_object_is_replaced_on_request() -> None:
    target = containers({"name": "a"}, {"name": "b"}, securityContext={"runAsUser": 1, "fsGroup": 2})

    replaced = merged(target, containers({"$patch": "replace"}, {"name": "c"}))
    context = merged(target, {"spec": {"securityContext": {"$patch": "replace", "runAsUser": 3}}})
    without = merged(target, {"spec": {"securityContext": {"$patch": "delete"}}})

    assert replaced["spec"]["containers"] == [{"name": "c"}]
    assert context["spec"]["securityContext"] == {"runAsUser": 3}
    assert "securityContext" not in without["spec"]


def test_a_union_keeps_only_the_retained_member() -> None:
    target = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}

    assert merged(target, patch) == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}


def test_values_are_deleted_from_a_set() -> None:
    target = {"metadata": {"finalizers": ["a", "b", "c"]}}

    result = merged(target, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "c"], "finalizers": ["d"]}})

    assert sorted(result["metadata"]["finalizers"]) == ["b", "d"]


@pytest.mark.parametrize(
    ("before", "patch", "order", "after"),
    [  # as a kube-apiserver 1.20 answered
        ("Ready", "Foo", None, "Foo Ready"),
        ("a b", "a c", None, "a c b"),
        ("a b c", "c", None, "a b c"),
        ("a b c", "c a", None, "b c a"),
        ("a b c", "c", "c a", "b c a"),
        ("a b c", "d", "a d", "a d b c"),
    ],
)
def test_an_order_is_kept(before: str, patch: str, order: str | None, after: str) -> None:
    wanted: Json = {"containers": [{"name": name, "image": "x"} for name in patch.split()]}
    if order is not None:
        wanted["$setElementOrder/containers"] = [{"name": name} for name in order.split()]

    result = merged(containers(*({"name": name} for name in before.split())), {"spec": wanted})

    assert [one["name"] for one in result["spec"]["containers"]] == after.split()


def test_lists_without_a_merge_strategy_are_replaced() -> None:
    assert NODE is not None
    target = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}

    result = strategic_merge(NODE, target, {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}})

    assert result == {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}


def test_an_element_without_its_key_is_an_error() -> None:
    with pytest.raises(StrategicError, match="does not contain declared merge key: name"):
        merged(containers({"name": "a"}), containers({"image": "x"}))


def test_a_map_cannot_replace_a_list() -> None:
    with pytest.raises(StrategicError, match="cannot restore slice from map"):
        merged(containers({"name": "a"}), {"spec": {"containers": {"name": "a"}}})


async def test_a_custom_kind_rejects_a_strategic_patch(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a"))

    with pytest.raises(ApiError, match="accepted media types include: application/json-patch") as caught:
        await asking.patch(WIDGETS, "a", {"spec": {"x": 1}}, PatchType.STRATEGIC)

    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


async def test_a_replace_of_a_json_patch_adds_a_missing_field(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a"))

    operations = [{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]
    patched = await asking.patch(CONFIG_MAPS, "a", operations, PatchType.JSON)

    assert patched["metadata"]["labels"] == {"a": "b"}


async def test_a_json_patch_applies_its_operations_in_order(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a", x="1"))
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/data/y", "value": "2"},
        {"op": "move", "from": "/data/y", "path": "/data/z"},
        {"op": "remove", "path": "/data/x"},
    ]

    patched = await asking.patch(CONFIG_MAPS, "a", operations, PatchType.JSON)

    assert patched["data"] == {"z": "2"}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "test", "path": "/data/x", "value": "2"}], 422),
        ([{"op": "remove", "path": "/data/nothing"}], 422),
        ([{"op": "add", "path": "/data/x/y", "value": 1}], 422),
        ([{"op": "fly", "path": "/data"}], 422),
        ({"op": "add"}, 400),
        ([1], 400),
        ([{"op": "replace", "path": "", "value": 3}], 400),
        ([{"op": "add", "path": "/a", "value": 1}] * 10_001, 413),
        ([{"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(22)], 413),
        ([{"op": "copy", "from": 5, "path": "/data/y"}], 422),
        ([{"op": "copy", "from": "/data/nothing", "path": "/data/y"}], 422),
    ],
)
async def test_a_json_patch_that_cannot_be_applied_changes_nothing(
    asking: ApiClient, operations: Any, code: int
) -> None:
    created = await asking.create(CONFIG_MAPS, config_map("a", x="1"))

    with pytest.raises(ApiError) as caught:
        await asking.patch(CONFIG_MAPS, "a", operations, PatchType.JSON)

    assert caught.value.code == code
    assert asking.get(CONFIG_MAPS, "a") == created


@pytest.mark.parametrize(("kind", "error"), [(PatchType.MERGE, Invalid), (PatchType.STRATEGIC, Invalid)])
async def test_a_malformed_patch_is_rejected(asking: ApiClient, kind: PatchType, error: type[ApiError]) -> None:
    await asking.create(PODS, pod("a"))

    with pytest.raises(error):
        await asking.patch(PODS, "a", [1], kind)


async def test_a_patch_may_not_change_the_kind(asking: ApiClient) -> None:
    await asking.create(PODS, pod("a"))

    with pytest.raises(BadRequest):
        await asking.patch(PODS, "a", {"kind": "Service"})


async def test_a_json_patch_that_nests_an_object_too_deeply_is_rejected(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a", spec={"zz": {}}))
    levels, path = 60, "/spec/zz"
    value: Json = {}
    for _ in range(levels):
        value = {"a": value}

    await asking.patch(WIDGETS, "a", [{"op": "add", "path": f"{path}/a", "value": value}], PatchType.JSON)
    deeper = [{"op": "add", "path": f"{path}{'/a' * levels}/a", "value": value}]
    with pytest.raises(BadRequest, match="nested deeper than 100 levels"):
        await asking.patch(WIDGETS, "a", deeper, PatchType.JSON)
