from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import FieldValidation, PatchBody, PatchType, WriteOptions
from tarragon.localcluster.storage.encoding import json_equal
from tests.localcluster.builders import (
    CONFIG_MAPS,
    CRDS,
    NAMESPACES,
    PODS,
    WIDGETS,
    ApiClient,
    config_map,
    definition,
    pod,
    widget,
)
from tests.localcluster.builders import version as crd_version

LEASES = ("coordination.k8s.io", "v1", "leases")
EVENTS = ("", "v1", "events")
SECRETS = ("", "v1", "secrets")
DRY = WriteOptions(dry_run=True)


async def test_uids_and_generated_names_are_random(asking: ApiClient) -> None:
    nameless = ({"metadata": {"generateName": "a-"}} for _ in range(50))
    created = [(await asking.create(CONFIG_MAPS, each))["metadata"] for each in nameless]

    uids = [uuid.UUID(one["uid"]) for one in created]
    assert {(uid.version, uid.variant) for uid in uids} == {(4, uuid.RFC_4122)}
    assert len(set(uids)) == len({one["name"] for one in created}) == len(created)
    assert {(one["name"][:2], len(one["name"])) for one in created} == {("a-", 7)}


async def test_a_dry_run_answers_and_stores_nothing(asking: ApiClient) -> None:
    target = asking.target(CONFIG_MAPS)
    await asking.create(CONFIG_MAPS, config_map("a", x="1"))
    before = asking.api.list(target)

    created = decode((await asking.api.create(target, config_map("b"), DRY)).object, dict)
    merge = PatchBody(PatchType.MERGE, {"data": {"x": "2"}})
    changed = decode((await asking.api.patch(asking.target(CONFIG_MAPS, "a"), merge, DRY)).object, dict)
    gone = await asking.api.delete(asking.target(CONFIG_MAPS, "a"), DeleteOptions(), DRY)

    assert created["metadata"]["uid"]
    assert "resourceVersion" not in created["metadata"]
    assert changed["data"] == {"x": "2"}
    assert gone.is_gone
    assert asking.api.list(target) == before


async def test_a_put_replaces_the_whole_object(asking: ApiClient) -> None:
    created = await asking.create(CONFIG_MAPS, config_map("a", x="1", y="2"))

    put = await asking.update(CONFIG_MAPS, config_map("a", x="3"))

    assert put["data"] == {"x": "3"}
    assert put["metadata"]["uid"] == created["metadata"]["uid"]
    assert put["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_a_put_of_an_unchanged_object_changes_nothing(asking: ApiClient) -> None:
    created = await asking.create(PODS, pod("a"))

    assert await asking.update(PODS, created) == created


async def test_a_put_of_an_old_version_or_another_uid_is_a_conflict(asking: ApiClient) -> None:
    created = await asking.create(CONFIG_MAPS, config_map("a"))
    await asking.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}})

    with pytest.raises(Conflict, match='Operation cannot be fulfilled on configmaps "a": the object has been modified'):
        await asking.update(CONFIG_MAPS, created)
    with pytest.raises(Conflict, match="Precondition failed: UID in precondition: 1234"):
        await asking.update(CONFIG_MAPS, {"metadata": {"name": "a", "uid": "1234"}})


async def test_a_put_of_a_custom_object_must_have_a_resource_version(asking: ApiClient) -> None:
    await asking.create(CRDS, definition())
    await asking.create(WIDGETS, widget("a"))

    with pytest.raises(
        Invalid, match=r"metadata\.resourceVersion: Invalid value: 0x0: must be specified for an update"
    ):
        await asking.update(WIDGETS, widget("a", spec={"x": 1}))


async def test_a_put_creates_a_missing_object_of_some_kinds_only(asking: ApiClient) -> None:
    with pytest.raises(NotFound):
        await asking.update(CONFIG_MAPS, config_map("a"))

    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    written = await asking.api.update(asking.target(LEASES, "l"), lease)

    assert written.created
    assert asking.names(LEASES) == ["l"]


async def test_the_name_on_the_path_is_the_default_and_must_match(asking: ApiClient) -> None:
    await asking.create(CONFIG_MAPS, config_map("a"))

    put = await asking.api.update(asking.target(CONFIG_MAPS, "a"), {"data": {"x": "1"}})
    with pytest.raises(BadRequest, match=r"the name of the object \(b\) does not match the name on the URL \(a\)"):
        await asking.api.update(asking.target(CONFIG_MAPS, "a"), config_map("b"))
    with pytest.raises(BadRequest, match="the namespace of the provided object does not match"):
        await asking.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "other"}})

    assert decode(put.object, dict)["data"] == {"x": "1"}


@pytest.mark.parametrize(
    ("validation", "warnings"),
    [
        (FieldValidation.WARN, ('unknown field "spec.containers[0].imagee"', 'unknown field "spec.extra"')),
        (FieldValidation.IGNORE, ()),
    ],
)
async def test_unknown_fields_are_dropped_with_a_warning(
    asking: ApiClient, validation: FieldValidation, warnings: tuple[str, ...]
) -> None:
    body = pod("a", extra=1)
    body["spec"]["containers"][0]["imagee"] = "typo"

    written = await asking.api.create(asking.target(PODS), body, WriteOptions(field_validation=validation))

    assert written.warnings == warnings
    assert "extra" not in decode(written.object, dict)["spec"]


async def test_unknown_fields_are_refused_when_validation_is_strict(asking: ApiClient) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": {"type": "integer"}}}}}
    await asking.create(CRDS, definition(versions=[crd_version("v1", schema=schema)]))
    strict = WriteOptions(field_validation=FieldValidation.STRICT)
    typo = widget("a", spec={"x": 1, "z": [1]})
    typo["metadata"]["nmae"] = "b"

    with pytest.raises(
        BadRequest, match=r'strict decoding error: unknown field "metadata\.nmae", unknown field "spec\.z"'
    ):
        await asking.api.create(asking.target(WIDGETS), typo, strict)

    await asking.api.create(asking.target(WIDGETS), widget("a", spec={"x": 1}), strict)


async def test_every_writer_owns_the_fields_that_it_wrote(asking: ApiClient, clock: FakeClock) -> None:
    await asking.create(PODS, pod("a"), field_manager="maker")
    clock.advance(10)
    status = PatchBody(PatchType.MERGE, {"status": {"phase": "Running"}})
    target = asking.target(PODS, "a", "status")
    await asking.api.patch(target, status, WriteOptions(field_manager="kubelet"))
    clock.advance(10)
    label = PatchBody(PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}})
    await asking.api.patch(asking.target(PODS, "a"), label, WriteOptions(field_manager="maker"))

    noted = asking.get(PODS, "a")["metadata"]["managedFields"]

    assert [(one["manager"], one.get("subresource", ""), one["time"]) for one in noted] == [
        ("kubelet", "status", "2026-01-01T00:00:10Z"),
        ("maker", "", "2026-01-01T00:00:20Z"),
    ]
    assert noted[0]["fieldsV1"] == {"f:status": {"f:phase": {}}}
    assert noted[1]["fieldsV1"]["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    assert set(noted[1]["fieldsV1"]) == {"f:metadata", "f:spec"}


async def test_nothing_can_be_created_in_a_terminating_namespace(asking: ApiClient) -> None:
    await asking.create(NAMESPACES, {"metadata": {"name": "ending"}})
    target = asking.api.target(CONFIG_MAPS, "ending")
    await asking.api.create(target, config_map("before"))

    ended = await asking.delete(NAMESPACES, "ending")
    with pytest.raises(Forbidden, match="because it is being terminated") as caught:
        await asking.api.create(target, config_map("after"))

    assert ended["status"]["phase"] == "Terminating"
    assert "deletionGracePeriodSeconds" not in ended["metadata"]
    assert caught.value.causes[0]["reason"] == "NamespaceTerminating"


async def test_a_namespace_is_removed_when_it_is_finalized(asking: ApiClient) -> None:
    created = await asking.create(NAMESPACES, {"metadata": {"name": "ending"}})
    await asking.patch(NAMESPACES, "ending", {"spec": {"finalizers": []}})
    kept = asking.get(NAMESPACES, "ending")
    await asking.delete(NAMESPACES, "ending")

    await asking.update(NAMESPACES, {"metadata": {"name": "ending"}, "spec": {"finalizers": []}}, "finalize")

    assert created["spec"]["finalizers"] == kept["spec"]["finalizers"] == ["kubernetes"]
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": "ending"}
    with pytest.raises(NotFound):
        asking.get(NAMESPACES, "ending")


async def test_the_first_namespaces_cannot_be_deleted(asking: ApiClient) -> None:
    with pytest.raises(Forbidden, match="this namespace may not be deleted"):
        await asking.delete(NAMESPACES, "default")


async def test_a_delete_answers_with_a_status_or_with_the_object(asking: ApiClient) -> None:
    created = await asking.create(CONFIG_MAPS, config_map("a"))
    await asking.create(PODS, pod("p"))

    status = await asking.delete(CONFIG_MAPS, "a")
    last = await asking.delete(PODS, "p")

    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert (last["kind"], last["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)


async def test_an_immutable_secret_stays_as_it_is(asking: ApiClient) -> None:
    await asking.create(SECRETS, {"metadata": {"name": "s"}, "data": {"a": "eA=="}, "immutable": True})

    for change in ({"data": {"a": "eQ=="}}, {"immutable": None}, {"stringData": {"b": "c"}}):
        with pytest.raises(Invalid, match="field is immutable when `immutable` is set"):
            await asking.patch(SECRETS, "s", change)
    with pytest.raises(Invalid, match="type: Invalid value"):
        await asking.patch(SECRETS, "s", {"type": "other"})


async def test_invalid_base64_is_a_bad_request(asking: ApiClient) -> None:
    with pytest.raises(BadRequest, match="illegal base64 data at input byte"):
        await asking.create(SECRETS, {"metadata": {"name": "s"}, "data": {"a": "!!"}})


async def test_events_are_removed_an_hour_after_their_last_write(asking: ApiClient, clock: FakeClock) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    for name in ("old", "renewed"):
        await asking.create(EVENTS, {"metadata": {"name": name}, "involvedObject": about})
    clock.advance(3000)
    await asking.patch(EVENTS, "renewed", {"count": 2})
    clock.advance(1000)

    await asking.api.maintain_once()

    assert asking.names(EVENTS) == ["renewed"]


async def test_a_method_that_a_subresource_does_not_support_is_not_allowed(asking: ApiClient) -> None:
    await asking.create(PODS, pod("a"))

    for call in (
        asking.api.update(asking.target(PODS, "a", "binding"), {}),
        asking.api.create(asking.target(PODS, "a", "status"), {}),
        asking.api.delete(asking.target(PODS, "a", "status")),
    ):
        with pytest.raises(ApiError) as caught:
            await call
        assert caught.value.code == 405
    with pytest.raises(NotFound, match="the server could not find the requested resource"):
        asking.target(PODS, "a", "scale")


async def test_concurrent_creates_of_one_name_create_one_object(asking: ApiClient) -> None:
    outcomes = await asyncio.gather(
        *(asking.create(CONFIG_MAPS, config_map("a", x=str(number))) for number in range(20)), return_exceptions=True
    )

    assert sum(isinstance(outcome, dict) for outcome in outcomes) == 1
    assert asking.get(CONFIG_MAPS, "a") in outcomes


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1, True),
        (1, True, False),
        ([0], [False], False),
        ({"a": 1.0}, {"a": 1}, True),
        ({"a": {}}, {"a": []}, False),
    ],
)
def test_json_equality_tells_numbers_from_booleans(left: Any, right: Any, same: bool) -> None:  # noqa: FBT001
    assert json_equal(left, right) is same
