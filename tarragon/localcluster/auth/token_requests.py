"""The subresource `serviceaccounts/token`, which issues tokens: `kubectl create token`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tarragon.client.errors import ApiError
from tarragon.kube.codec import format_time
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, RequestTarget
from tarragon.localcluster.api.user import User
from tarragon.localcluster.auth.service_account_tokens import ISSUER, TokenAuthority, TokenSpec
from tarragon.localcluster.registry.computed import ComputedKind
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value

API_VERSION = "authentication.k8s.io/v1"
DEFAULT_SECONDS = 3600
LEAST_SECONDS = 600
_MOST_SECONDS = 2**32
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    audiences: list[str] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: dict[str, Any] | None = None


class _Request(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TokenRequests(ComputedKind):
    accounts: TokenAuthority

    async def create(self, target: RequestTarget, body: Json, user: User) -> Json:  # noqa: ARG002 - every user may
        spec = _asked(body).spec
        seconds = DEFAULT_SECONDS if spec.expiration_seconds is None else spec.expiration_seconds
        if fault := _fault(seconds):
            raise _invalid(fault)
        if self.accounts.stored("serviceaccounts", target.namespace, target.name) is None:
            raise errors.not_found(target.served, target.name)
        audiences, bound = spec.audiences or [ISSUER], spec.bound_object_ref
        token, end = self.accounts.issue(
            TokenSpec(
                namespace=target.namespace,
                account=target.name,
                audiences=audiences,
                seconds=seconds,
                **self._bound(target, bound),
            )
        )
        until = format_time(dt.datetime.fromtimestamp(end, dt.UTC))
        metadata = {**(body.get("metadata") or {}), "name": target.name, "namespace": target.namespace}
        return {
            "kind": "TokenRequest",
            "apiVersion": API_VERSION,
            "metadata": {**metadata, "creationTimestamp": format_time(self.accounts.now())},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": until},
        }

    def _bound(self, target: RequestTarget, reference: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the bound object as arguments of `TokenSpec`. Raises ApiError when it does not exist or does not
        match.
        """
        if not reference:
            return {}
        kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
        version = str(reference.get("apiVersion", ""))
        plural = _BINDABLE.get(kind)
        if plural is None or version not in {"v1", ""}:
            group, _, number = version.rpartition("/")
            raise errors.bad_request(f"cannot bind token to object of type {group}/{number}, Kind={kind}")
        found = self.accounts.stored(plural, "" if plural == "nodes" else target.namespace, name)
        if found is None:
            details = {"name": name, "kind": plural}
            raise errors.failure(404, "NotFound", f'{plural} "{name}" not found', details)
        if kind == "Pod" and found["spec"].get("serviceAccountName") != target.name:
            cannot = f'cannot bind token for serviceaccount "{target.name}"'
            raise errors.bad_request(f"{cannot} to pod running with different serviceaccount name.")
        uid = found["metadata"]["uid"]
        if reference.get("uid") not in {None, "", uid}:
            raise _other(plural, name, str(reference["uid"]), uid)
        bound: dict[str, Any] = {"bound_kind": kind.lower(), "bound": {"name": name, "uid": uid}}
        node = found["spec"].get("nodeName") if kind == "Pod" else ""
        if node:
            bound["node"] = {"name": node, **self._node_uid(node)}
        return bound

    def _node_uid(self, name: str) -> dict[str, str]:
        found = self.accounts.stored("nodes", "", name)
        return {"uid": found["metadata"]["uid"]} if found else {}


def _asked(body: Json) -> _Request:
    try:
        return msgspec.convert(body, _Request)
    except msgspec.ValidationError as error:
        words = f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}'
        raise errors.bad_request(words) from error


def _fault(seconds: int) -> FieldError | None:
    field = "spec.expirationSeconds"
    if seconds < LEAST_SECONDS:
        return invalid_value(field, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MOST_SECONDS:
        return invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds")
    return None


def _invalid(fault: FieldError) -> ApiError:
    details = {
        "group": "authentication.k8s.io",
        "kind": "TokenRequest",
        "causes": [{"reason": fault.reason, "message": fault.message, "field": fault.field}],
    }
    message = f'TokenRequest.authentication.k8s.io "" is invalid: {fault}'
    return errors.failure(422, "Invalid", message, details)


def _other(plural: str, name: str, asked: str, found: str) -> ApiError:
    why = f"the UID in the bound object reference ({asked}) does not match the UID in record. The object might have "
    why += "been deleted and then recreated"
    message = f'Operation cannot be fulfilled on {plural} "{name}": {why}'
    return errors.failure(409, "Conflict", message, {"name": name, "kind": plural, "uid": found})
