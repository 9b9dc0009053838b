"""`--pod-groups`: which other schedulers want a PodGroup of a job that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec

import click

P = ParamSpec("P")

KINDS = ("volcano", "scheduler-plugins", "native")
"""Those of plan/groupkinds, which takes longer to import than a help text may take."""


def pod_groups_option(command: Callable[P, None]) -> Callable[P, None]:
    return click.option(
        "--pod-groups",
        metavar="NAME=KIND",
        multiple=True,
        callback=_read,
        help=f"a scheduler that wants PodGroups of jobs that name it, and whose: {', '.join(KINDS)}; "
        "volcano=volcano and scheduler-plugins-scheduler=scheduler-plugins need not be said",
    )(command)


def _read(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    from tarragon.plan.objects.podgroup_kinds import BY_SCHEDULER  # not for a help text: it takes its time

    found = dict(BY_SCHEDULER)
    for each in given:
        name, _sign, kind = each.partition("=")
        if not name or kind not in KINDS:
            raise click.BadParameter(f"{each!r} is not NAME=KIND with one of {', '.join(KINDS)}")
        found[name] = kind
    return found
