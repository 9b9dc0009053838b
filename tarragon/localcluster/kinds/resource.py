"""One kind in one version, as the API serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.schema.schema import StructuralSchema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""The same verbs, in the order of discovery for custom kinds."""


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
    """The paths that an autoscaling/v1 Scale reads, as plain names: `("spec", "replicas")`."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    label_selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedView:
    """Another form in which the objects of a stored kind are served, by another group or version.

    `from_stored` converts objects from the stored form, `to_stored` into it, and `to_stored_field_selector` converts
    field selectors into it.
    """

    of: ServedKind
    from_stored: Callable[[dict[str, Any]], dict[str, Any]]
    to_stored: Callable[[dict[str, Any]], dict[str, Any]]
    to_stored_field_selector: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedKind:
    """One kind in one of the versions it is served in.

    `subresources` are plain names (`status`, `scale`, `log`), and `selectable` the fields (`spec.color`) that a CRD
    declares for selectors. `openapi` is the schema as written in the CRD, None for built-in kinds, and `schema` the
    same compiled. A kind that is not `is_stored` is served by registry/computed.py, and one with a `view` shows the
    objects of another kind. Objects stored before the revision `schema_changed_at` may not fit the present schema.
    An instance equals only itself: a CRD that changes makes new ones.
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
    schema: StructuralSchema | None = None
    is_custom: bool = False
    schema_changed_at: int = 0
    is_stored: bool = True
    view: ConvertedView | None = None

    @property
    def api_version(self) -> str:
        """The apiVersion in manifests: `v1`, `kubeflow.org/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name in messages: `pods`, `tfjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_name(self) -> str:
        """The store's name for its objects: its full name, or that of the kind that it is a view of."""
        return self.view.of.full_name if self.view is not None else self.full_name
