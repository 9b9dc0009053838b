"""Query parameters of a request, decoded into the options that `Api` takes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from tarragon.client.port import DeleteOptions, LogOptions
from tarragon.kube.codec import parse_time
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import FieldValidation, ListOptions, PatchType, WatchOptions, WriteOptions
from tarragon.localcluster.schema import field_errors

_KINDS_OF_DELETE = (None, "", "DeleteOptions")

Query = Mapping[str, str]
Propagation = Literal["Background", "Foreground", "Orphan"]

_MANAGER_LIMIT = 128
_NOT_OLDER = "NotOlderThan"
_VALIDATIONS = {"": FieldValidation.WARN, **{each.value: each for each in FieldValidation}}


def flag(query: Query, name: str) -> bool:
    """Return a boolean parameter: as in Kubernetes, every value is true except `false`, `0` and the empty one."""
    return query.get(name, "").lower() not in {"", "false", "0"}


def whole_number(query: Query, name: str) -> int | None:
    """Return a numeric parameter; None when it is absent. Raises BadRequest."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})') from None


def list_options(query: Query) -> ListOptions:
    """Return the options of a list. Raises Invalid for parameters of watches, and BadRequest."""
    found = []
    if query.get("continue") and query.get("resourceVersionMatch"):
        words = "resourceVersionMatch is forbidden when continue is provided"
        found.append(field_errors.forbidden_value("resourceVersionMatch", words))
    if query.get("sendInitialEvents"):
        found.append(field_errors.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if found:
        raise errors.invalid_options("ListOptions", found)
    return ListOptions(
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        limit=whole_number(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
    )


def watch_options(query: Query) -> WatchOptions:
    """Return the options of a watch. Raises Invalid."""
    if found := list(_match_faults(query)):
        raise errors.invalid_options("ListOptions", found)
    return WatchOptions(
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        allow_bookmarks=flag(query, "allowWatchBookmarks"),
        send_initial_events=flag(query, "sendInitialEvents"),
    )


def _match_faults(query: Query) -> Iterator[field_errors.FieldError]:
    """Yield the faults of a watch: `resourceVersionMatch` goes with `sendInitialEvents` only."""
    match, begins = query.get("resourceVersionMatch", ""), bool(query.get("sendInitialEvents"))
    if begins and match != _NOT_OLDER:
        words = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        yield field_errors.forbidden_value("resourceVersionMatch", words)
    if match and not begins:
        words = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield field_errors.forbidden_value("resourceVersionMatch", words)
    if match and match != _NOT_OLDER:
        yield field_errors.unsupported("resourceVersionMatch", match, [_NOT_OLDER])


def write_options(query: Query, user_agent: str, kind: str) -> WriteOptions:
    """Return the options of a write. `kind`, such as CreateOptions, is for error messages."""
    asked = query.get("fieldValidation", "")
    validation = _VALIDATIONS.get(asked)
    if validation is None:
        fault = field_errors.unsupported("fieldValidation", asked, sorted(filter(None, _VALIDATIONS)))
        raise errors.invalid_options(kind, [fault])
    return WriteOptions(
        dry_run=_dry_run(query, kind),
        field_validation=validation,
        field_manager=_manager(query.get("fieldManager", ""), user_agent, kind),
    )


def of_patch(query: Query, options: WriteOptions, patch: PatchType) -> WriteOptions:
    """Complete the options of a patch: an apply needs a field manager, and only an apply may be forced."""
    if patch is PatchType.APPLY:
        if not query.get("fieldManager"):
            wrong = field_errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid_options("PatchOptions", [wrong])
        return replace(options, force=flag(query, "force"))
    if query.get("force"):
        wrong = field_errors.forbidden_value("force", "may not be specified for non-apply patch")
        raise errors.invalid_options("PatchOptions", [wrong])
    return options


def _dry_run(query: Query, kind: str) -> bool:
    value = query.get("dryRun", "")
    if value not in {"", "All"}:
        raise errors.invalid_options(kind, [field_errors.unsupported("dryRun", value, ["All"])])
    return bool(value)


def _manager(given: str, user_agent: str, kind: str) -> str:
    """Return the field manager: the given one, or the program's name in the User-Agent."""
    if len(given) > _MANAGER_LIMIT:
        fault = field_errors.FieldError(
            "fieldManager", "FieldValueTooLong", f"Too long: may not be more than {_MANAGER_LIMIT} bytes"
        )
        raise errors.invalid_options(kind, [fault])
    return given or user_agent.partition("/")[0].strip()[:_MANAGER_LIMIT]


def delete_options(query: Query, body: Mapping[str, Any], user_agent: str) -> tuple[DeleteOptions, WriteOptions]:
    """Return the options of a delete, from the body if the client sent one, else from the URL."""
    if body.get("kind") not in _KINDS_OF_DELETE:
        words = f"the object provided is unrecognized (must be of type DeleteOptions): it is a {body['kind']}"
        raise errors.bad_request(words)
    preconditions = body.get("preconditions")
    preconditions = preconditions if isinstance(preconditions, dict) else {}
    grace = body.get("gracePeriodSeconds", whole_number(query, "gracePeriodSeconds"))
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise errors.bad_request("DeleteOptions: gracePeriodSeconds must be a whole number of seconds")
    dry = body.get("dryRun") or []
    if dry not in ([], ["All"]):
        raise errors.invalid_options("DeleteOptions", [field_errors.unsupported("dryRun", dry, ["All"])])
    options = DeleteOptions(
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        grace_period_seconds=None if grace is None else max(0, grace),
        propagation_policy=_propagation(query, body),
    )
    writing = write_options(query, user_agent, "DeleteOptions")
    return options, replace(writing, dry_run=True) if dry else writing


def _propagation(query: Query, body: Mapping[str, Any]) -> Propagation | None:
    value = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = flag(query, "orphanDependents")
    if value and orphan is not None:
        words = "orphanDependents and deletionPropagation cannot be both set"
        raise errors.invalid_options("DeleteOptions", [field_errors.invalid_value("propagationPolicy", value, words)])
    for known in get_args(Propagation):
        if value == known:
            chosen: Propagation = known
            return chosen
    if value:
        fault = field_errors.unsupported("propagationPolicy", value, get_args(Propagation))
        raise errors.invalid_options("DeleteOptions", [fault])
    return None if orphan is None else "Orphan" if orphan else "Background"


def log_options(query: Query, now: dt.datetime) -> tuple[LogOptions, int | None]:
    """Return the options of a log, and its limit in bytes, which the HTTP layer enforces."""
    tail, since, limit = (whole_number(query, name) for name in ("tailLines", "sinceSeconds", "limitBytes"))
    found = [
        field_errors.invalid_value(name, value, f"must be greater than or equal to {least}")
        for name, value, least in (("tailLines", tail, 0), ("sinceSeconds", since, 1), ("limitBytes", limit, 1))
        if value is not None and value < least
    ]
    if since is not None and "sinceTime" in query:
        found.append(field_errors.forbidden_value("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if found:
        raise errors.invalid_options("PodLogOptions", found)
    options = LogOptions(
        container=query.get("container", ""),
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        timestamps=flag(query, "timestamps"),
        tail_lines=tail,
        since_seconds=_seconds_since(query["sinceTime"], now) if query.get("sinceTime") else since,
    )
    return options, limit


def _seconds_since(text: str, now: dt.datetime) -> int:
    try:
        # Rounded up: better one line too many than one too few.
        return max(1, -int((parse_time(text) - now).total_seconds() // 1))
    except ValueError as error:
        raise errors.bad_request(f"sinceTime: {error}") from None
