"""Compares pod templates, and hashes them for the names of replica sets."""

from __future__ import annotations

import hashlib
from typing import Any

from tarragon.kube.codec import encode
from tarragon.localcluster.controllers.workloads.model import Json
from tarragon.localcluster.storage.encoding import json_equal

HASH_LABEL = "pod-template-hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: without vowels they form no words."""
_LENGTH = 10
_MAPS = frozenset({"labels", "annotations", "nodeSelector"})


def template_hash(template: Json, collisions: int = 0) -> str:
    """The hash of the template. `collisions` counts earlier hashes whose name another template had taken."""
    digest = hashlib.sha256(encode([_unlabelled(template), collisions])).digest()
    number = int.from_bytes(digest[:8])
    letters = []
    for _ in range(_LENGTH):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def is_same_template(one: Json, other: Json) -> bool:
    """Whether the templates are equal apart from the label with the hash."""
    return json_equal(_unlabelled(one), _unlabelled(other))


def labelled(template: Json, label: str, value: str) -> Json:
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), label: value}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _unlabelled(template: Json) -> Any:
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    return _tidied({**template, "metadata": {**metadata, "labels": labels}})


def _tidied(value: Any) -> Any:
    """Sort keys, and drop what equals an absent field: an empty list, an empty map of strings."""
    if isinstance(value, dict):
        kept = {name: _tidied(value[name]) for name in sorted(value)}
        return {name: each for name, each in kept.items() if each != [] and not (each == {} and name in _MAPS)}
    return [_tidied(each) for each in value] if isinstance(value, list) else value
