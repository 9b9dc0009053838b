"""Resolves the global options to the cluster that they name."""

from __future__ import annotations

import os

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.settings import LOCAL, GlobalOptions, embedded_home


def resolve_target(settings: GlobalOptions) -> ClusterTarget:
    """Returns the cluster that the settings name. Raises TarragonError if the kubeconfig does not have it."""
    if settings.is_local:
        from tarragon.cli.targets.embedded import EmbeddedTarget

        return EmbeddedTarget(embedded_home(), settings.explicit_namespace)
    from tarragon.cli.targets.foreign import kubeconfig_target

    return kubeconfig_target(settings, os.environ)


def require_local(settings: GlobalOptions, command: str) -> None:
    """Raises TarragonError if the settings name another cluster: some commands, such as `up`, need the embedded one."""
    if settings.is_local:
        return
    named = f"context {settings.context}" if settings.context else settings.kubeconfig or "kubectl's current context"
    remedy = "`kubectl config view` shows its kubeconfig; " if command == "kubeconfig" else ""
    raise TarragonError(
        f"`{command}` works only on the embedded cluster of this machine, not on {named}",
        why="other clusters are managed by their administrators",
        remedy=f"{remedy}use --context {LOCAL} for the embedded cluster",
    )
