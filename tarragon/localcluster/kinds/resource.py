"""One kind in one version, as the API serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tarragon.localcluster.schema.schema import Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""The same in the order in which discovery has always told them of custom kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """One of a CRD's additionalPrinterColumns. `json_path` is as written: `.status.phase`."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where autoscaling/v1 Scale finds its numbers, as plain names: `("spec", "replicas")`."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    label_selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Another form in which the objects of a stored kind are served, by a group of its own.

    `shown` and `kept` turn objects from the stored form and into it; `old_fields` does it for a field selector.
    """

    of: Served
    shown: Callable[[dict[str, Any]], dict[str, Any]]
    kept: Callable[[dict[str, Any]], dict[str, Any]]
    old_fields: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """One kind in one of the versions it is served in.

    `subresources` are plain names (`status`, `scale`, `log`), `selectable` the fields (`spec.color`) by which a CRD
    lets its objects be selected. `openapi` is the schema as its CRD wrote it, None for
    built-in kinds, and `schema` the same compiled. Of a kind that is not `is_stored`, `computed` answers; the objects
    of one that is a `view` are those of another kind. What was stored before the revision `reshaped_since` may have
    another shape than the schema says now.
    Equal only to itself: a CRD that changes makes new ones.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    list_kind: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[str, ...] = ()
    storage_version: str = ""
    printer_columns: tuple[PrinterColumn, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: ScalePaths | None = None
    openapi: Mapping[str, Any] | None = None
    schema: Schema | None = None
    is_custom: bool = False
    reshaped_since: int = 0
    is_stored: bool = True
    view: View | None = None

    @property
    def api_version(self) -> str:
        """As written in manifests: `v1`, `kubeflow.org/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As messages name it: `pods`, `tfjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def shelf(self) -> str:
        """As the store files its objects: by its name, or by that of the kind of which it is a view."""
        return self.view.of.full_name if self.view is not None else self.full_name

    def in_group(self, group: str) -> Served:
        """The same kind in another group."""
        return replace(self, group=group)
