"""Init containers that copy a tool from the operator's image into a volume.

The operator's own image may have no shell, but it has a Python. Another image need not have that.
"""

from __future__ import annotations

import shlex

from tarragon.frameworks.plugin import FileDelivery
from tarragon.kube.meta import JsonObject
from tarragon.plan.objects.settings import OperatorSettings

# Containers on a process node have an agent of the node instead, and its image is a folder of this machine.
_COPY = """\
import os, shutil, sys
if not os.environ.get("TARRAGON_RSH"):
    shutil.copy(sys.argv[1], sys.argv[2])
"""


def build_delivery(delivery: FileDelivery, settings: OperatorSettings) -> JsonObject:
    """Return the init container that copies the file."""
    source, target = delivery.source, delivery.target
    if settings.delivery_image:
        copy = f'[ -n "$TARRAGON_RSH" ] || cp {shlex.quote(source)} {shlex.quote(target)}'
        return {"image": settings.delivery_image, "command": ["/bin/sh", "-c", copy], **delivery.container}
    # Isolated and without site-packages it starts at once, and in little memory: the launcher's limits hold for it.
    command = ["python3", "-I", "-S", "-c", _COPY, source, target]
    return {"image": settings.own_image, "command": command, **delivery.container}
