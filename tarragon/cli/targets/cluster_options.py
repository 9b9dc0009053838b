"""Which cluster a process serves that is a part of it: the operator, a node. Their options, and the way in."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.cli.options.gathering import gathered
from tarragon.cli.options.settings import LOCAL, Settings, home

if TYPE_CHECKING:
    from tarragon.client.http.connection import Access

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A cluster, as the command line has it."""

    file: Path | None
    context: str | None


def cluster_options(command: Callable[P, None]) -> Callable[P, None]:
    """`--kubeconfig` and `--context`, together as `cluster`."""
    context = click.option("--context", metavar="NAME", help="of the kubeconfig; `local` is the embedded cluster")
    kubeconfig = click.option(
        "--kubeconfig",
        "file",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="of the cluster; by default KUBECONFIG, ~/.kube/config, or what a pod is given",
    )
    return kubeconfig(context(gathered("cluster", Named)(command)))


def access(settings: Settings, cluster: Named, otherwise: Path | None = None) -> Access:
    """What stands behind the command wins over what stands in front of it; `otherwise`: a file where none is named.

    Raises TarragonError.
    """
    from tarragon.client.http.connection import here

    before = Path(settings.kubeconfig) if settings.kubeconfig else None
    path = cluster.file or before or otherwise
    name = cluster.context or settings.context
    if name == LOCAL:
        return here(os.environ, path=path or home().kubeconfig)
    return here(os.environ, path=path, context=name)
