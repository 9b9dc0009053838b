"""Prepares objects of any kind for create and update: decodes, defaults and validates them, and records ownership."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tarragon.localcluster.api import errors
from tarragon.localcluster.apply.managed_fields import recording
from tarragon.localcluster.apply.managed_fields.field_set import Fields, union
from tarragon.localcluster.apply.managed_fields.reset_fields import filled_in_later
from tarragon.localcluster.kinds.go_types import DecodeError, decode_in_place, go_type_of, metadata_type
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value
from tarragon.localcluster.validation import metadata as metadata_rules
from tarragon.localcluster.validation.kind_rules import KindRules, rules_of
from tarragon.localcluster.validation.scale import scale_faults

Json = dict[str, Any]

_STATUS_UPDATE_PARTS = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldManager:
    """The manager, time and operation of a write, for managedFields. `now` is a metav1.Time."""

    manager: str
    now: str
    subresource: str = ""
    operation: Literal["Apply", "Update"] = "Update"

    def as_apply(self) -> FieldManager:
        return replace(self, operation="Apply")


def decode_object(served: ServedKind, body: Any, touched: Collection[str] | None = None) -> tuple[Json, list[str]]:
    """Decode the body as an object of the kind, in place. Unknown fields are dropped, and their paths returned.

    With `touched`, only these parts of a built-in kind are decoded; the caller knows that the others are correct.
    Raises BadRequest for what is not an object of the kind, Invalid for another kind of the same group.
    """
    if not isinstance(body, dict):
        raise errors.cannot_decode(served, f"json: cannot unmarshal {type(body).__name__} into Go value")
    _check_type(served, body)
    try:
        if served.is_custom:
            return body, _decode_custom(served, body)
        unknown = _decode_built_in(served, body, touched)
    except DecodeError as error:
        raise errors.cannot_decode(served, str(error)) from error
    body.setdefault("metadata", {})
    return body, unknown


def prepare_create(
    served: ServedKind, thing: Json, author: FieldManager, uid: str, unowned: Fields | None = None
) -> None:
    """Turn a decoded body, with its name and namespace set, into the object to store, in place.

    The server itself has filled in the `unowned` fields. Raises Invalid.
    """
    rules = rules_of(served)
    metadata = thing["metadata"]
    given, server_fields = metadata.pop("managedFields", None), union(filled_in_later(served, thing), unowned or {})
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        metadata.pop(field, None)
    metadata["uid"], metadata["creationTimestamp"] = uid, author.now
    if rules.has_generation:
        metadata["generation"] = 1
    if "status" in served.subresources and not rules.keeps_status:
        thing.pop("status", None)
    rules.prepare_create(thing)
    _raise_if_any(served, thing, [*_faults(served, rules, thing), *rules.create_faults(thing)])
    if author.operation == "Apply":
        recording.record_apply(thing, None, given)
    else:
        recording.record_create(served, thing, given, recording.WriteOwner(entry_header(served, author), server_fields))


def prepare_update(served: ServedKind, thing: Json, old: Json, author: FieldManager) -> Json:
    """The object to store for a decoded update of `old` through the author's subresource. Raises Invalid.

    It equals `old` if the update changes nothing.
    """
    rules = rules_of(served)
    given = thing["metadata"].pop("managedFields", None)
    wanted = _writable_part(served, thing, old, author.subresource)
    metadata_rules.restore_server_fields(wanted["metadata"], old["metadata"])
    if author.subresource in {"", "scale"}:
        rules.prepare_update(wanted, old)
    faults = list(metadata_rules.update_faults(wanted["metadata"], old["metadata"]))
    if author.subresource == "status" and not served.is_custom:
        # The rest is unchanged, so it is still valid.
        faults += [*_metadata_faults(rules, wanted), *rules.status_faults(wanted)]
    else:
        faults += _faults(served, rules, wanted)
    if author.subresource == "":
        faults += rules.update_faults(wanted, old)
    _raise_if_any(served, old, faults)
    if rules.has_generation and _is_new_generation(served, wanted, old):
        wanted["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
    if author.operation == "Apply":
        recording.record_apply(wanted, old, given)
    else:
        client_entries = None if author.subresource else given
        recording.record_update(served, wanted, old, client_entries, recording.WriteOwner(entry_header(served, author)))
    return wanted


def _check_type(served: ServedKind, body: Mapping[str, Any]) -> None:
    version, kind = body.get("apiVersion"), body.get("kind")
    if served.is_custom:
        if not kind:
            raise errors.cannot_decode(served, "Object 'Kind' is missing")
        if version != served.api_version:
            raise errors.bad_request(
                f"the API version in the data ({version or ''}) does not match the expected API version "
                f"({served.api_version})"
            )
        if kind != served.kind:
            name = body.get("metadata", {}).get("name", "") if isinstance(body.get("metadata"), dict) else ""
            raise errors.invalid(served, name, [invalid_value("kind", kind, f"must be {served.kind}")])
    elif kind not in (None, "", served.kind) or version not in (None, "", served.api_version):
        raise errors.bad_request(
            f"the object provided ({version or served.api_version}, Kind={kind or served.kind}) does not match the "
            f"kind of the resource ({served.api_version}, Kind={served.kind})"
        )


def _decode_built_in(served: ServedKind, body: Json, touched: Collection[str] | None) -> list[str]:
    shape = go_type_of(served.group, served.version, served.kind)
    if shape is None or touched is None:
        return decode_in_place(shape, body) if shape is not None else []
    parts = {name: body[name] for name in touched if name in body}
    unknown = decode_in_place(shape, parts)
    for name in touched:
        _copy_part(body, parts, name)
    return unknown


def _decode_custom(served: ServedKind, body: Json) -> list[str]:
    assert served.schema is not None  # noqa: S101 - every custom kind has one
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise DecodeError("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta")
    unknown = [f"metadata.{path}" for path in decode_in_place(metadata_type(), metadata)]
    unknown += served.schema.prune(body)
    served.schema.default(body)
    return unknown


def _faults(served: ServedKind, rules: KindRules, thing: Mapping[str, Any]) -> list[FieldError]:
    if served.schema is not None:
        faults = list(metadata_rules.metadata_faults(thing["metadata"], rules.name_fault))
        faults += served.schema.validate(thing)
        return faults + (list(scale_faults(served.scale, thing)) if served.scale is not None else [])
    return [*_metadata_faults(rules, thing), *rules.faults(thing)]


def _metadata_faults(rules: KindRules, thing: Mapping[str, Any]) -> list[FieldError]:
    """The faults in the metadata of a built-in kind."""
    metadata = thing["metadata"]
    return [*metadata_rules.metadata_faults(metadata, rules.name_fault), *metadata_rules.finalizer_faults(metadata)]


def _raise_if_any(served: ServedKind, thing: Mapping[str, Any], faults: list[FieldError]) -> None:
    if faults:
        raise errors.invalid(served, thing["metadata"].get("name") or "", faults)


def _writable_part(served: ServedKind, thing: Json, old: Json, subresource: str) -> Json:
    """The old object with the parts of the update that its subresource may write."""
    match subresource:
        case "status":
            wanted = {**old, "metadata": {**old["metadata"]}} if served.is_custom else _with_new_metadata(thing, old)
            _copy_part(wanted, thing, "status")
        case "finalize":
            wanted = {**old, "metadata": {**old["metadata"]}, "spec": thing.get("spec") or {}}
        case _:
            wanted = thing
            if "status" in served.subresources:
                _copy_part(wanted, old, "status")
    return wanted


def _with_new_metadata(thing: Json, old: Json) -> Json:
    """Built-in kinds accept metadata through `status` as well, except owner references."""
    wanted = {**thing, "metadata": {**thing["metadata"]}}
    for part in {*thing, *old} - _STATUS_UPDATE_PARTS:
        _copy_part(wanted, old, part)
    _copy_part(wanted["metadata"], old["metadata"], "ownerReferences")
    return wanted


def _is_new_generation(served: ServedKind, thing: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether anything differs besides metadata and, for kinds with that subresource, status."""
    outside = {"metadata", "apiVersion"} | ({"status"} if "status" in served.subresources else set())
    return any(thing.get(part) != old.get(part) for part in {*thing, *old} - outside)


def entry_header(served: ServedKind, author: FieldManager) -> Json:
    """The author's managedFields entry, without the fields."""
    entry = {
        "manager": author.manager or "unknown",
        "operation": author.operation,
        "apiVersion": served.api_version,
        "time": author.now,
    }
    return {**entry, "subresource": author.subresource} if author.subresource else entry


def _copy_part(target: Json, source: Mapping[str, Any], part: str) -> None:
    if part in source:
        target[part] = source[part]
    else:
        target.pop(part, None)
