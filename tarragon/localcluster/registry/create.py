"""Creates objects: assigns their names, fills in what admission adds, and validates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tarragon.kube.codec import decode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, RequestTarget, WriteOptions, WriteResult
from tarragon.localcluster.apply.managed_fields.reset_fields import added_by_admission, copy_before_admission
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.registry.custom_kinds import DEFINITIONS, CustomKindController
from tarragon.localcluster.registry.service_allocator import ServiceAllocator
from tarragon.localcluster.registry.strategy import FieldManager, decode_object, prepare_create
from tarragon.localcluster.registry.writes import (
    WriteDecision,
    WriteTransaction,
    field_warnings,
    generate_name,
    new_uid,
)
from tarragon.localcluster.schema.unenforced import unenforced_warnings
from tarragon.localcluster.storage.encoding import encode_in_version, parse_resource_version
from tarragon.localcluster.validation.kind_rules import rules_of

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"

_DEFAULT_MARK = b'"globalDefault":true'
"""Part of every stored default class. Each new pod looks for one, so other classes are not even decoded."""

_NAME_ATTEMPTS = 8
"""How many names are generated when the previous ones are taken."""


class Creator:
    """Handles POST to a collection, and PUT of missing objects of the kinds that allow it."""

    def __init__(self, writes: WriteTransaction, custom_kinds: CustomKindController) -> None:
        self._writes = writes
        self._store = writes.store
        self._custom_kinds = custom_kinds
        self._addresses = ServiceAllocator(writes.store)
        self.admit_pod: Callable[[Json], None] | None = None
        """Called with each new pod, to change it: it mounts the token of the pod's service account."""

    async def create(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteResult:
        return await self._writes.run(lambda: self.decide(target, body, options), options)

    def decide(
        self, target: RequestTarget, body: Json, options: WriteOptions, author: FieldManager | None = None
    ) -> WriteDecision[WriteResult]:
        """Decide a create. `author` replaces the one of `options`, for an apply."""
        served = target.served
        thing, unknown = decode_object(served, body)
        warnings = field_warnings(served, unknown, options)
        metadata = thing["metadata"]
        version = metadata.pop("resourceVersion", None)
        self._set_namespace(target, metadata)
        self._generate_name(served, metadata)
        self._custom_kinds.check_creation(served)
        sent = copy_before_admission(served, thing)
        if served.full_name == "pods":
            self._set_priority(served, thing)
            if self.admit_pod is not None:
                self.admit_pod(thing)
        self._addresses.allocate(served, thing)
        unowned = added_by_admission(served, sent, thing)
        prepare_create(served, thing, author or self._writes.field_manager(options), new_uid(), unowned)
        if served.full_name == DEFINITIONS:
            self._custom_kinds.accept_names(thing)
            warnings += unenforced_warnings(thing)
        if parse_resource_version(version or "") and not options.dry_run:
            # As in a kube-apiserver's storage: after all other checks, as a 500, and not in a dry run.
            raise errors.failure(500, "", "resourceVersion should not be set on objects to be created")
        if (
            self._store.pending_state(served.storage_name, (metadata.get("namespace", ""), metadata["name"]))
            is not None
        ):
            taken = errors.generated_name_taken if metadata.get("generateName") else errors.already_exists
            raise taken(served, metadata["name"])
        change = self._writes.change(served, thing, None, options)
        return WriteDecision(
            [change], WriteResult(encode_in_version(change.state.body, served), created=True, warnings=warnings)
        )

    def _set_namespace(self, target: RequestTarget, metadata: Json) -> None:
        """Take the namespace from the path. Raises NotFound if it does not exist, Forbidden if it is terminating."""
        if not target.served.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.get("namespace") not in {None, "", target.namespace}:
            raise errors.other_namespace()
        metadata["namespace"] = target.namespace
        stored = self._store.pending_state("namespaces", ("", target.namespace))
        if stored is None:
            raise errors.no_such_namespace(target.namespace)
        if stored.fields == ("Terminating",):
            raise errors.terminating(target.served, str(metadata.get("name") or ""), target.namespace)

    def _generate_name(self, served: ServedKind, metadata: Json) -> None:
        if metadata.get("name"):
            return
        for _ in range(_NAME_ATTEMPTS):
            metadata.pop("name", None)
            generate_name(metadata)
            key = (metadata.get("namespace", ""), metadata.get("name", ""))
            if self._store.pending_state(served.storage_name, key) is None:
                return

    def _set_priority(self, served: ServedKind, pod: Json) -> None:
        """Resolve the pod's priority class, as the Priority admission plug-in does."""
        spec = pod.setdefault("spec", {})
        name = spec.get("priorityClassName")
        priority_class: Any = None
        if name:
            stored = self._store.pending_state(PRIORITY_CLASSES, ("", name))
            if stored is None:
                words = f"no PriorityClass with name {name} was found"
                raise errors.forbidden(served, pod["metadata"].get("name", ""), words)
            priority_class = decode(stored.body, dict)
        elif default := self._default_class():
            priority_class, spec["priorityClassName"] = default, default["metadata"]["name"]
        spec["priority"] = int(priority_class["value"]) if priority_class else 0
        preemption = (priority_class or {}).get("preemptionPolicy", "PreemptLowerPriority")
        spec.setdefault("preemptionPolicy", preemption)

    def _default_class(self) -> Any:
        found = (stored.body for stored in self._store.pending_states(PRIORITY_CLASSES) if _DEFAULT_MARK in stored.body)
        classes = (decode(body, dict) for body in found)
        return max((one for one in classes if one.get("globalDefault")), key=lambda one: -one["value"], default=None)


def creates_on_update(served: ServedKind) -> bool:
    """Whether a PUT creates a missing object of this kind."""
    return rules_of(served).creates_on_update
