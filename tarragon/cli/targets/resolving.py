"""From the flags of a command to the cluster that they name."""

from __future__ import annotations

import os

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.settings import LOCAL, Settings, home


def target(settings: Settings) -> Target:
    """The cluster that the settings name. Raises TarragonError when the kubeconfig does not know it."""
    if settings.is_local:
        from tarragon.cli.targets.embedded import Embedded

        return Embedded(home(), settings.given_namespace)
    from tarragon.cli.targets.foreign import foreign

    return foreign(settings, os.environ)


def require_local(settings: Settings, command: str) -> None:
    """Raises TarragonError where another cluster is named: `up` and others are about the embedded one only."""
    if settings.is_local:
        return
    named = f"context {settings.context}" if settings.context else settings.kubeconfig or "kubectl's current context"
    remedy = "`kubectl config view` shows its kubeconfig; " if command == "kubeconfig" else ""
    raise TarragonError(
        f"`{command}` is about the embedded cluster of this machine, not about {named}",
        why="other clusters are started, ended and described by whoever runs them",
        remedy=f"{remedy}--context {LOCAL} means the embedded one",
    )
