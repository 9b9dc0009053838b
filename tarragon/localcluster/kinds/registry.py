"""The registry of served kinds: built-in ones, and those that CustomResourceDefinitions add while the server runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.localcluster.kinds.builtin_kinds import built_in_kinds
from tarragon.localcluster.kinds.resource import PrinterColumn, ScalePaths, ServedKind

__all__ = ["KindRegistry", "PrinterColumn", "ScalePaths", "ServedKind"]


class KindRegistry:
    """All served kinds. `generation` counts their changes, so that callers notice when cached discovery is stale."""

    def __init__(self) -> None:
        self.generation = 0
        self._built_in = tuple(built_in_kinds())
        self._custom: dict[str, tuple[ServedKind, ...]] = {}
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in self._built_in}

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        """The kind at a path, or None when nothing is served there."""
        return self._by_path.get((group, version, plural))

    def __iter__(self) -> Iterator[ServedKind]:
        """Every kind in every served version, built-in groups first, the preferred version of a group first."""
        yield from self._built_in
        for name in sorted(self._custom):
            yield from self._custom[name]

    def set_custom(self, full_name: str, versions: Sequence[ServedKind]) -> None:
        """Serve a custom kind in these versions, the preferred one first; without any it is no longer served."""
        for kind in self._custom.pop(full_name, ()):
            del self._by_path[kind.group, kind.version, kind.plural]
        if versions:
            self._custom[full_name] = tuple(versions)
            self._by_path |= {(kind.group, kind.version, kind.plural): kind for kind in versions}
        self.generation += 1
