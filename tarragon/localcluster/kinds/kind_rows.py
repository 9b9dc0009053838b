"""Builds one row of the tables of built-in kinds."""

from __future__ import annotations

from tarragon.localcluster.kinds.resource import ALL_VERBS, ScalePaths, Served, View


def row(  # noqa: PLR0913 - the columns of the tables
    group: str,
    plural: str,
    kind: str,
    *,
    short: str = "",
    sub: str = "",
    singular: str = "",
    namespaced: bool = True,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
    scale: ScalePaths | None = None,
    view: View | None = None,
    is_stored: bool = True,
) -> Served:
    """A kind in version v1. `short` and `sub` are names separated by spaces."""
    return Served(
        group=group,
        version="v1",
        storage_version="v1",
        plural=plural,
        kind=kind,
        singular=singular or kind.lower(),
        list_kind=f"{kind}List",
        namespaced=namespaced,
        short_names=tuple(short.split()),
        categories=categories,
        verbs=verbs,
        subresources=tuple(sub.split()),
        scale=scale,
        view=view,
        is_stored=is_stored,
    )
