"""The cluster options of the commands that are part of a cluster: `operator` and `node`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.options.gathering import option_group
from tarragon.cli.options.settings import LOCAL, GlobalOptions, embedded_home

if TYPE_CHECKING:
    from tarragon.client.http.config import ClusterConfig

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    """A cluster as given on the command line."""

    kubeconfig: Path | None
    context: str | None


def cluster_options(command: Callable[P, None]) -> Callable[P, None]:
    """Adds `--kubeconfig` and `--context`, passed together as `cluster`."""
    context = click.option(
        "--context", metavar="NAME", help="context of the kubeconfig; `local` is the embedded cluster"
    )
    kubeconfig = click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="path to the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the pod's service account",
    )
    return kubeconfig(context(option_group("cluster", ClusterFlags)(command)))


def access(settings: GlobalOptions, cluster: ClusterFlags, otherwise: Path | None = None) -> ClusterConfig:
    """Returns the access to the cluster. Options after the command win over the global options before it.

    `otherwise` is the kubeconfig to use if none is given. Raises TarragonError.
    """
    from tarragon.client.http.config import load_config

    global_file = Path(settings.kubeconfig) if settings.kubeconfig else None
    path = cluster.kubeconfig or global_file or otherwise
    name = cluster.context or settings.context
    if name == LOCAL:
        return load_config(os.environ, path=path or embedded_home().kubeconfig)
    return load_config(os.environ, path=path, context=name)
