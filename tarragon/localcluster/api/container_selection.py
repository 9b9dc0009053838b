"""Selects the container that a request addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.api import errors


def requested_container(pod: Mapping[str, Any], wanted: str) -> str:
    """The name of the requested container, or of the only main container. Raises BadRequest."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    mains = [each["name"] for each in spec.get("containers") or []]
    inits = [each["name"] for each in spec.get("initContainers") or []]
    if not wanted:
        if len(mains) == 1:
            return str(mains[0])
        choice = f"a container name must be specified for pod {name}, choose one of: [{' '.join(mains)}]"
        raise errors.bad_request(f"{choice} or one of the init containers: [{' '.join(inits)}]" if inits else choice)
    if wanted not in mains + inits:
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted
