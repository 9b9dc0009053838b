"""`user_agent`: how our programs name themselves to an API server, for its audit log and its metrics."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from tarragon import __version__

_GO_NAMES: Mapping[str, str] = MappingProxyType({"x86_64": "amd64", "aarch64": "arm64"})
_MOST_LETTERS = 253
"""Of an instance, which is the name of a pod or a node as a rule. API servers cut an agent at 1,024 bytes."""


def user_agent(component: str, instance: str = "") -> str:
    """`tarragon/0.1.0 (linux/amd64; operator; tarragon-5d4f_0a1b2c3d)`.

    As client-go's, it begins with `program/version (os/arch`; API servers take what is before the slash as the manager
    of fields. Characters of the instance that may not be in a comment of a header (RFC 9110) are replaced.
    """
    system = os.uname()
    platform = f"{system.sysname.lower()}/{_GO_NAMES.get(system.machine, system.machine)}"
    parts = [platform, component, *([_cleaned(instance)] if instance else [])]
    return f"tarragon/{__version__} ({'; '.join(parts)})"


def _cleaned(text: str) -> str:
    return re.sub(r"[^!-~]|[()\\;]", "_", text)[:_MOST_LETTERS]
