"""Objects that pods use and that do not exist, as the kubelet or the API server names them, and how to create them."""

from __future__ import annotations

import re

from tarragon.cli.manifest.dependencies import creation_command

_NOT_FOUND = re.compile(
    r"\b(?P<kind>secret|configmap|persistentvolumeclaim|serviceaccount)s? \"(?P<name>[a-z0-9][a-z0-9.-]*)\" not found"
)
_NO_KEY = re.compile(
    r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?P<namespace>[a-z0-9-]+)/(?P<name>[a-z0-9.-]+)"
)


def missing_object_remedy(message: str, namespace: str) -> str:
    """Says how to create the object that the message misses, or to add the key; empty if it misses none."""
    missing = _NOT_FOUND.search(message)
    if missing is not None:
        command = creation_command(missing["kind"], namespace, missing["name"])
        return f"create it, and pods that wait for it start by themselves: {command}"
    key = _NO_KEY.search(message)
    if key is not None:
        return f"add the key {key['key']}: kubectl -n {key['namespace']} edit {key['kind'].lower()} {key['name']}"
    return ""
