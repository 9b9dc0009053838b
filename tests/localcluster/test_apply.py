"""Server-side apply of the embedded API: the messages that kubectl prints, and the ownership behind them."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError, BadRequest, Conflict, NotFound
from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import PatchBody, PatchType, WriteOptions
from tests.localcluster.builders import CONFIG_MAPS, CRDS, PODS, WIDGETS, ApiClient, Json, config_map, definition, pod
from tests.localcluster.builders import version as crd_version

JOBS = ("batch", "v1", "jobs")
SERVICES = ("", "v1", "services")
CLIENT_SIDE = "kubectl.kubernetes.io/last-applied-configuration"

FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SIZED = crd_version(
    "v1",
    schema={
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}, "status": FREE},
    },
    subresources={"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
)


def settings(name: str = "a", **data: str) -> Json:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return {**body, "data": data} if data else body


async def apply(  # noqa: PLR0913 - as many as kubectl's flags
    asking: ApiClient,
    body: Json,
    manager: str,
    *,
    force: bool = False,
    kind: tuple[str, str, str] = CONFIG_MAPS,
    subresource: str = "",
) -> Json:
    options = WriteOptions(field_manager=manager, force=force)
    target = asking.target(kind, body["metadata"]["name"], subresource)
    written = await asking.api.patch(target, PatchBody(PatchType.APPLY, body), options)
    return decode(written.object, dict)


def managers(thing: Json) -> dict[str, Any]:
    return {one["manager"]: one["fieldsV1"] for one in thing["metadata"].get("managedFields", ())}


async def test_an_apply_creates_a_missing_object(asking: ApiClient) -> None:
    created = await apply(asking, settings(a="1"), "me")

    assert created["data"] == {"a": "1"}
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]


async def test_an_apply_that_changes_nothing_writes_nothing(asking: ApiClient, clock: FakeClock) -> None:
    created = await apply(asking, settings(a="1"), "me")
    clock.advance(60)

    again = await apply(asking, settings(a="1"), "me")

    assert again == created


async def test_a_field_that_is_no_longer_applied_is_removed_unless_others_own_it(asking: ApiClient) -> None:
    await apply(asking, settings(a="1", b="2", c="3"), "me")
    await apply(asking, settings(b="2"), "other")
    await asking.patch(CONFIG_MAPS, "a", {"data": {"c": "9", "d": "4"}})

    result = await apply(asking, settings(), "me")

    assert result["data"] == {"b": "2", "c": "9", "d": "4"}
    assert "me" not in managers(result)


async def test_a_conflict_is_worded_as_kubectl_prints_it(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a", a="1"), field_manager="kubectl-client-side-apply")

    with pytest.raises(Conflict) as caught:
        await apply(asking, settings(a="2"), "me")

    assert str(caught.value) == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a'
    )
    assert caught.value.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-client-side-apply" using v1',
            "field": ".data.a",
        }
    ]


async def test_several_conflicts_are_listed_by_manager(asking: ApiClient) -> None:
    await apply(asking, settings(a="1", b="1"), "one")
    await asking.api.patch(
        asking.target(CONFIG_MAPS, "a"),
        PatchBody(PatchType.MERGE, {"data": {"c": "1"}}),
        WriteOptions(field_manager="editor"),
    )

    with pytest.raises(Conflict) as caught:
        await apply(asking, settings(a="2", b="2", c="2"), "me")

    assert str(caught.value) == (
        'Apply failed with 3 conflicts: conflicts with "editor" using v1:\n- .data.c\n'
        'conflicts with "one":\n- .data.a\n- .data.b'
    )


async def test_force_takes_what_others_own(asking: ApiClient) -> None:
    await apply(asking, settings(a="1", b="1"), "one")

    taken = await apply(asking, settings(a="2"), "me", force=True)

    assert taken["data"] == {"a": "2", "b": "1"}
    assert managers(taken) == {"me": {"f:data": {"f:a": {}}}, "one": {"f:data": {"f:b": {}}}}


async def test_list_items_are_identified_by_their_keys_including_defaulted_ones(asking: ApiClient) -> None:
    def ports(*ports: Json) -> Json:
        spec = {"clusterIP": "None", "ports": list(ports)}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}

    await apply(asking, ports({"name": "x", "port": 80}), "one", kind=SERVICES)
    both = await apply(asking, ports({"name": "u", "port": 80, "protocol": "UDP"}), "two", kind=SERVICES)

    with pytest.raises(Conflict, match=r'conflict with "one": \.spec\.ports\[port=80,protocol="TCP"\]\.name'):
        await apply(asking, ports({"name": "y", "port": 80, "protocol": "TCP"}), "three", kind=SERVICES)

    assert [(port["name"], port["protocol"]) for port in both["spec"]["ports"]] == [("x", "TCP"), ("u", "UDP")]


async def test_an_applied_list_sets_the_order_and_other_items_keep_their_positions(asking: ApiClient) -> None:
    def finalizers(*names: str) -> Json:
        return {**settings(), "metadata": {"name": "a", "finalizers": [f"example.com/{name}" for name in names]}}

    await apply(asking, finalizers("a", "b", "c"), "one")
    result = await apply(asking, finalizers("d", "c", "a"), "two")

    assert [name[-1] for name in result["metadata"]["finalizers"]] == ["b", "d", "c", "a"]


async def test_fields_without_managed_fields_belong_to_before_first_apply(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a", a="1", b="2"))
    reset = await asking.patch(CONFIG_MAPS, "a", {"metadata": {"managedFields": [{}]}})
    unowned = await asking.patch(CONFIG_MAPS, "a", {"data": {"c": "3"}})

    with pytest.raises(Conflict, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        await apply(asking, settings(a="9"), "me")
    result = await apply(asking, settings(a="1"), "me")

    assert "managedFields" not in reset["metadata"]
    assert "managedFields" not in unowned["metadata"]
    assert managers(result) == {
        "me": {"f:data": {"f:a": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}}},
    }


async def test_clients_may_write_managed_fields_and_malformed_ones_are_ignored(asking: ApiClient) -> None:
    await apply(asking, settings(a="1"), "me")
    given = {"manager": "you", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    mine = {**given, "fieldsV1": {"f:data": {"f:a": {".": {}}}}}

    moved = await asking.patch(CONFIG_MAPS, "a", {"metadata": {"managedFields": [mine]}})
    kept = await asking.patch(CONFIG_MAPS, "a", {"metadata": {"managedFields": [{**mine, "operation": "Guess"}]}})

    assert managers(moved) == managers(kept) == {"you": {"f:data": {"f:a": {}}}}
    other = [mine, {**mine, "manager": "gone", "apiVersion": "v0"}]
    patched = await asking.patch(CONFIG_MAPS, "a", {"metadata": {"managedFields": other}})
    assert set(managers(patched)) == {"you"}
    with pytest.raises(ApiError, match=r"metadata\.managedFields\[0\]\.manager: Too long") as caught:
        await asking.patch(CONFIG_MAPS, "a", {"metadata": {"managedFields": [{**mine, "manager": "m" * 129}]}})
    assert caught.value.code == 422


async def test_the_oldest_of_too_many_update_entries_are_merged(asking: ApiClient, clock: FakeClock) -> None:
    await asking.create(CONFIG_MAPS, config_map("a", first="v"), field_manager="maker")
    for number in range(12):
        clock.advance(1)
        patch = PatchBody(PatchType.MERGE, {"data": {f"k{number:02}": "v"}})
        await asking.api.patch(asking.target(CONFIG_MAPS, "a"), patch, WriteOptions(field_manager=f"m{number:02}"))

    entries = managers(asking.get(CONFIG_MAPS, "a"))

    assert list(entries) == ["ancient-changes", *(f"m{number:02}" for number in range(3, 12))]
    assert entries["ancient-changes"] == {"f:data": {".": {}, "f:first": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}}


async def test_creators_own_defaults_but_not_what_the_server_fills_in_later(asking: ApiClient) -> None:
    created = await asking.create(PODS, pod("a"), field_manager="me")

    spec = managers(created)["me"]["f:spec"]
    assert spec["f:containers"] == {
        'k:{"name":"main"}': {
            ".": {},
            "f:image": {},
            "f:imagePullPolicy": {},
            "f:name": {},
            "f:resources": {},
            "f:terminationMessagePath": {},
            "f:terminationMessagePolicy": {},
        }
    }
    assert {"f:restartPolicy", "f:dnsPolicy"} <= set(spec)
    assert not {"f:tolerations", "f:priority", "f:preemptionPolicy", "f:serviceAccountName", "."} & set(spec)
    assert set(managers(created)["me"]) == {"f:spec"}


async def test_nobody_owns_what_admission_fills_in(asking: ApiClient) -> None:
    reached = await asking.create(SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}})

    assert reached["spec"]["ipFamilies"]
    assert set(next(iter(managers(reached).values()))["f:spec"]) <= {
        *("f:internalTrafficPolicy", "f:ports", "f:sessionAffinity", "f:type")
    }


async def test_nobody_owns_the_labels_that_a_job_generates_for_its_pods(asking: ApiClient) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "nothing:1"}]}}
    created = await asking.create(JOBS, {"metadata": {"name": "a"}, "spec": {"template": template}}, field_manager="me")

    assert created["spec"]["template"]["metadata"]["labels"]
    assert set(managers(created)["me"]["f:spec"]["f:template"]) == {"f:spec"}
    assert "f:selector" not in managers(created)["me"]["f:spec"]


async def test_status_and_scale_are_applied_through_their_subresources(asking: ApiClient) -> None:
    await asking.create(CRDS, definition(versions=[SIZED]))
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    await apply(asking, {**body, "spec": {"size": 1}, "status": {}}, "me", kind=WIDGETS)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}

    with pytest.raises(Conflict, match=r'conflict with "me": \.spec\.size'):
        await apply(asking, scale, "scaler", kind=WIDGETS, subresource="scale")
    scaled = await apply(asking, scale, "scaler", kind=WIDGETS, subresource="scale", force=True)

    entries = asking.get(WIDGETS, "a")["metadata"]["managedFields"]
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 2})
    assert [(one["manager"], one.get("subresource"), one["fieldsV1"]) for one in entries] == [
        ("scaler", "scale", {"f:spec": {"f:size": {}}})
    ]


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "v2"}, 400, "invalid object type: /v2, Kind=ConfigMap"),
        ({"metadata": {"name": "a", "managedFields": []}}, 400, "metadata.managedFields must be nil"),
        ({"metadata": {"name": "a", "uid": "x"}}, 409, "the provided object specified uid x, and no existing object"),
        ({"foo": 1}, 500, "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .foo: field not declared"),
        ({"data": [1]}, 500, ".data: expected map, got &{[1]}"),
        ({"data": {"k": 1}}, 500, ".data.k: expected string, got &value.valueUnstructured{Value:1}"),
        ({"immutable": "x"}, 500, ".immutable: expected boolean, got &{x}"),
        ({"metadata": {"name": "a", "finalizers": ["x", "x"]}}, 500, 'duplicate entries for key [="x"]'),
    ],
)
async def test_an_invalid_apply_is_rejected_in_the_words_of_a_server(
    asking: ApiClient, more: Json, code: int, words: str
) -> None:
    with pytest.raises(ApiError) as caught:
        await apply(asking, {**settings(), **more}, "me")

    assert words in str(caught.value)
    assert caught.value.code == code
    with pytest.raises(NotFound):
        asking.get(CONFIG_MAPS, "a")


async def test_an_applied_object_must_have_the_name_of_its_path(asking: ApiClient) -> None:
    nameless = {"apiVersion": "v1", "kind": "ConfigMap"}
    target, options = asking.target(CONFIG_MAPS, "a"), WriteOptions(field_manager="me")

    with pytest.raises(BadRequest, match=r"\(a based on URL\) was undeterminable"):
        await asking.api.patch(target, PatchBody(PatchType.APPLY, nameless), options)
    with pytest.raises(BadRequest, match=r"\(b\) does not match the name on the URL \(a\)"):
        await asking.api.patch(target, PatchBody(PatchType.APPLY, settings("b")), options)


async def test_a_version_that_is_not_the_newest_is_a_conflict(asking: ApiClient) -> None:
    created = await apply(asking, settings(a="1"), "me")
    await asking.patch(CONFIG_MAPS, "a", {"data": {"b": "2"}})
    old = {**settings(a="2"), "metadata": {"name": "a", "resourceVersion": created["metadata"]["resourceVersion"]}}

    with pytest.raises(Conflict, match="the object has been modified"):
        await apply(asking, old, "me")


async def test_kubectl_takes_over_its_own_client_side_applies(asking: ApiClient) -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},"name":"a"},"data":{"a":"1"}}\n'
    body = {"metadata": {"name": "a", "annotations": {CLIENT_SIDE: last}}, "data": {"a": "1"}}
    await asking.create(CONFIG_MAPS, body, field_manager="kubectl-client-side-apply")

    with pytest.raises(Conflict):
        await apply(asking, settings(a="2"), "somebody")
    result = await apply(asking, settings(a="<2>"), "kubectl")

    assert result["data"] == {"a": "<2>"}
    assert result["metadata"]["annotations"][CLIENT_SIDE] == (
        '{"apiVersion":"v1","data":{"a":"\\u003c2\\u003e"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'
    )


async def test_kubectl_does_not_take_over_fields_that_others_have_changed_since(asking: ApiClient) -> None:
    last = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","b":"1"}}'
    body = {"metadata": {"name": "a", "annotations": {CLIENT_SIDE: last}}, "data": {"a": "1", "b": "1"}}
    await asking.create(CONFIG_MAPS, body, field_manager="kubectl-client-side-apply")
    await asking.patch(CONFIG_MAPS, "a", {"data": {"b": "2"}})

    with pytest.raises(Conflict, match=r"1 conflict: .*: \.data\.b"):
        await apply(asking, settings(a="3", b="3"), "kubectl")
