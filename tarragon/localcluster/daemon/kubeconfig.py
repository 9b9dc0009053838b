"""The kubeconfig of the embedded cluster: a separate file, never the user's own kubeconfig."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tarragon.base.errors import TarragonError
from tarragon.localcluster.home.home import write_private_file

CONTEXT = "tarragon"


def kubeconfig(url: str, authority: bytes, token: str) -> bytes:
    """A kubeconfig in JSON, which is valid YAML and needs no library. It refers to no files, so it can be moved."""
    authority_data = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url, "certificate-authority-data": authority_data}}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}}],
        "current-context": CONTEXT,
    }
    return json.dumps(config, indent=2).encode() + b"\n"


def write(path: Path, content: bytes) -> None:
    """Write the kubeconfig. Raises TarragonError if the file exists and is not a kubeconfig of ours."""
    if path.exists() and not _is_ours(path):
        raise TarragonError(
            f"{path} already exists and was not written by Tarragon",
            why="it may contain the only copy of credentials",
            remedy="choose another file, or remove that one",
        )
    write_private_file(path, content)


def _is_ours(path: Path) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        config: Any = json.loads(path.read_bytes())
        return [context["name"] for context in config["contexts"]] == [CONTEXT]
    return False
