"""The name by which API servers know our programs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from tarragon import __version__

_GO_NAMES: Mapping[str, str] = MappingProxyType({"x86_64": "amd64", "aarch64": "arm64"})
_MAX_INSTANCE_LENGTH = 253
"""The maximum length of a pod or node name, which an instance usually is. API servers cut agents at 1,024 bytes."""


def user_agent(component: str, instance: str = "") -> str:
    """`tarragon/0.1.0 (linux/amd64; operator; tarragon-5d4f_0a1b2c3d)`.

    Like client-go's, it begins with `program/version (os/arch`. API servers use the part before the slash as the field
    manager. Characters of the instance that are not allowed in a header comment (RFC 9110) are replaced.
    """
    system = os.uname()
    platform = f"{system.sysname.lower()}/{_GO_NAMES.get(system.machine, system.machine)}"
    parts = [platform, component, *([_sanitized(instance)] if instance else [])]
    return f"tarragon/{__version__} ({'; '.join(parts)})"


def _sanitized(text: str) -> str:
    return re.sub(r"[^!-~]|[()\\;]", "_", text)[:_MAX_INSTANCE_LENGTH]
