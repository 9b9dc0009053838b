"""The errors of the API, each a complete metav1.Status in the words of a kube-apiserver.

Scripts and client libraries match these words, which were compared with a real server's answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tarragon.client.errors import ApiError, error_from_status
from tarragon.kube.json_depth import MAX_MANIFEST_DEPTH
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import FieldError


def failure(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> ApiError:
    """The error for a metav1.Status with this content."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        **({"reason": reason} if reason else {}),
        "code": code,
    }
    if details is not None:
        status["details"] = details
    return error_from_status(status)


def success(served: ServedKind, name: str, uid: str) -> dict[str, Any]:
    """The Status that answers a delete that removed the object."""
    details = {**_about(served, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def too_large_to_store() -> ApiError:
    """In etcd's words, because users search for them."""
    return failure(500, "", "etcdserver: request is too large")


def created_status() -> dict[str, Any]:
    """The Status that answers a binding or an eviction."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def no_such_resource() -> ApiError:
    return failure(404, "NotFound", "the server could not find the requested resource", {})


def no_resize() -> ApiError:
    """The answer for a subresource of pods that a cluster has, and that could change nothing here."""
    why = "pods can't be resized in place here: their containers are processes, whose limits no kernel enforces"
    message = f"the server could not find the requested resource ({why}; to change requests, replace the pod)"
    return failure(404, "NotFound", message, {})


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return failure(405, "MethodNotAllowed", message, {})


def timed_out() -> ApiError:
    return failure(504, "Timeout", "Timeout: request did not complete within the allotted timeout", {})


def not_found(served: ServedKind, name: str, hint: str = "") -> ApiError:
    return failure(404, "NotFound", f'{served.full_name} "{name}" not found{hint}', _about(served, name))


def already_exists(served: ServedKind, name: str) -> ApiError:
    return failure(409, "AlreadyExists", f'{served.full_name} "{name}" already exists', _about(served, name))


def generated_name_taken(served: ServedKind, name: str) -> ApiError:
    """A generated name is taken; a retry gets another one."""
    message = (
        f'{served.full_name} "{name}" already exists, the server was not able to generate a unique name for the object'
    )
    return failure(409, "AlreadyExists", message, {**_about(served, name), "retryAfterSeconds": 1})


def modified(served: ServedKind, name: str) -> ApiError:
    """The resourceVersion given is not the stored one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(served, name, why)


def conflict(served: ServedKind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {served.full_name} "{name}": {why}'
    return failure(409, "Conflict", message, _about(served, name))


def precondition(served: ServedKind, name: str, why: str) -> ApiError:
    """A delete's uid or resourceVersion is not the stored one. Here a real server names the kind, not the resource."""
    qualified = f"{served.kind}.{served.group}" if served.group else served.kind
    details = {**_about(served, name), "kind": served.kind}
    return failure(409, "Conflict", f'Operation cannot be fulfilled on {qualified} "{name}": {why}', details)


def forbidden(served: ServedKind, name: str, why: str, causes: Sequence[dict[str, Any]] = ()) -> ApiError:
    details: dict[str, Any] = {**_about(served, name), **({"causes": list(causes)} if causes else {})}
    return failure(403, "Forbidden", f'{served.full_name} "{name}" is forbidden: {why}', details)


def binding_conflict(name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return failure(409, "Conflict", message, {"name": name, "kind": "pods/binding"})


def no_such_namespace(namespace: str) -> ApiError:
    """The namespace of a new object does not exist."""
    details = {"name": namespace, "kind": "namespaces"}
    return failure(404, "NotFound", f'namespaces "{namespace}" not found', details)


def terminating(served: ServedKind, name: str, namespace: str) -> ApiError:
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(served, name, why, [cause])


def invalid(served: ServedKind, name: str, faults: Sequence[FieldError]) -> ApiError:
    """422 with all faults."""
    qualified = f"{served.kind}.{served.group}" if served.group else served.kind
    return _invalid(qualified, served.group, served.kind, name, faults)


def missing_resource_version(served: ServedKind, name: str) -> ApiError:
    """A PUT without a resourceVersion. Here a real server names the resource, not the kind."""
    fault = FieldError(
        "metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0x0: must be specified for an update"
    )
    return _invalid(served.full_name, served.group, served.plural, name, [fault])


def invalid_options(kind: str, faults: Sequence[FieldError]) -> ApiError:
    """422 for the query parameters of a request: `kind` is ListOptions, DeleteOptions or the like."""
    return _invalid(f"{kind}.meta.k8s.io", "meta.k8s.io", kind, "", faults)


def _invalid(qualified: str, group: str, kind: str, name: str, faults: Sequence[FieldError]) -> ApiError:
    texts = [str(fault) for fault in faults]
    words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": fault.reason, "message": fault.message, "field": fault.field} for fault in faults]
    details: dict[str, Any] = {
        **({"name": name} if name else {}),
        **({"group": group} if group else {}),
        "kind": kind,
        "causes": causes,
    }
    return failure(422, "Invalid", f'{qualified} "{name}" is invalid: {words}', details)


def bad_request(message: str) -> ApiError:
    return failure(400, "BadRequest", message)


def other_namespace() -> ApiError:
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")


def nested_too_deeply() -> ApiError:
    """A kube-apiserver accepts 10,000 levels; this limit keeps objects readable for clients that recurse."""
    return bad_request(f"the object provided is nested deeper than {MAX_MANIFEST_DEPTH} levels")


def cannot_decode(served: ServedKind, why: str, version: str = "") -> ApiError:
    """The body is not an object of this kind."""
    kind = served.kind
    return bad_request(f'{kind} in version "{version or served.version}" cannot be handled as a {kind}: {why}')


def unsupported_media_type(accepted: Sequence[str], *, why: str = "") -> ApiError:
    words = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return failure(415, "UnsupportedMediaType", why or words)


def expired(message: str) -> ApiError:
    return failure(410, "Expired", message)


def too_old(asked: int, oldest: int) -> ApiError:
    """A watch from a revision before the history."""
    return expired(f"too old resource version: {asked} ({oldest})")


def too_large(asked: int, current: int) -> ApiError:
    """A resourceVersion that has not been issued yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return failure(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def too_large_to_watch(asked: int, current: int) -> ApiError:
    return expired(f"too large resource version: {asked}, current: {current}")


def internal(message: str) -> ApiError:
    details = {"causes": [{"message": message}]}
    return failure(500, "InternalError", f"Internal error occurred: {message}", details)


def insufficient_storage(why: str) -> ApiError:
    """507: the disk rejected the write, which has had no effect."""
    message = f"the write could not be stored and had no effect: {why}; free space on the disk and try again"
    return failure(507, "InsufficientStorage", message)


def _about(served: ServedKind, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": served.group} if served.group else {}), "kind": served.plural}
