"""The kubeconfig of the embedded cluster: a file of its own, never the user's."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tarragon.base.errors import TarragonError
from tarragon.localcluster.home.home import write_private

CONTEXT = "tarragon"


def kubeconfig(url: str, authority: bytes, token: str) -> bytes:
    """JSON is YAML, too, and needs no library. Everything is in it: the file may be carried to another folder."""
    trusted = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url, "certificate-authority-data": trusted}}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
        "current-context": CONTEXT,
    }
    return json.dumps(config, indent=2).encode() + b"\n"


def write(path: Path, content: bytes) -> None:
    """Raises TarragonError rather than overwrite a file that is not one of ours."""
    if path.exists() and not _is_ours(path):
        raise TarragonError(
            f"{path} is there already and is not a kubeconfig of this kind",
            why="it may hold the only copy of somebody's credentials",
            remedy="name another file, or remove that one",
        )
    write_private(path, content)


def _is_ours(path: Path) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        config: Any = json.loads(path.read_bytes())
        return [context["name"] for context in config["contexts"]] == [CONTEXT]
    return False
