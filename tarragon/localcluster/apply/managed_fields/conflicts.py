"""Conflicts: fields that an apply would change and that others own, worded as kubectl prints them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.apply.managed_fields import field_set
from tarragon.localcluster.apply.managed_fields.entries import Entry
from tarragon.localcluster.apply.managed_fields.field_set import Fields
from tarragon.localcluster.apply.managed_fields.path_elements import path_text


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """The fields of one entry that would change."""

    entry: Entry
    fields: Fields

    @property
    def paths(self) -> list[str]:
        return [path_text(path) for path in field_set.paths(self.fields)]


class FieldConflictsError(Exception):
    """An apply without force would change fields that others own."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = sorted(conflicts, key=lambda one: _title(one.entry))

    @property
    def fields(self) -> Fields:
        found: Fields = {}
        for conflict in self.conflicts:
            found = field_set.union(found, conflict.fields)
        return found

    def excluding(self, allowed: Fields) -> list[FieldConflict]:
        """The conflicts that remain without the allowed fields."""
        reduced = (FieldConflict(one.entry, field_set.difference(one.fields, allowed)) for one in self.conflicts)
        return [one for one in reduced if one.fields]

    def to_api_error(self) -> ApiError:
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {_title(one.entry)}", "field": path}
            for one in self.conflicts
            for path in one.paths
        ]
        return errors.failure(409, "Conflict", self._message(), {"causes": causes})

    def _message(self) -> str:
        count = sum(len(one.paths) for one in self.conflicts)
        if count == 1:
            only = self.conflicts[0]
            return f"Apply failed with 1 conflict: conflict with {_title(only.entry)}: {only.paths[0]}"
        lines = [
            line
            for one in self.conflicts
            for line in (f"conflicts with {_title(one.entry)}:", *(f"- {path}" for path in one.paths))
        ]
        return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def _title(entry: Mapping[str, Any]) -> str:
    name = json.dumps(entry.get("manager") or "", ensure_ascii=False)
    if entry.get("subresource"):
        name = f'{name} with subresource "{entry["subresource"]}"'
    return f"{name} using {entry.get('apiVersion')}" if entry.get("operation") == "Update" else name
