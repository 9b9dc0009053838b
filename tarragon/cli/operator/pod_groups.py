"""The option `--pod-groups`: the kind of PodGroup to create for jobs of other schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec

import click

P = ParamSpec("P")

POD_GROUP_KINDS = ("volcano", "scheduler-plugins", "native")
"""The kinds of `plan.objects.podgroup_kinds`, repeated here because importing it would slow down `--help`."""


def pod_groups_option(command: Callable[P, None]) -> Callable[P, None]:
    return click.option(
        "--pod-groups",
        metavar="NAME=KIND",
        multiple=True,
        callback=_read,
        help="create PodGroups of this kind for jobs with this schedulerName; KIND is "
        f"one of {', '.join(POD_GROUP_KINDS)}; "
        "volcano=volcano and scheduler-plugins-scheduler=scheduler-plugins are built in",
    )(command)


def _read(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    from tarragon.plan.objects.podgroup_kinds import DEFAULT_KIND_BY_SCHEDULER  # a slow import, not needed for --help

    found = dict(DEFAULT_KIND_BY_SCHEDULER)
    for each in given:
        name, _sign, kind = each.partition("=")
        if not name or kind not in POD_GROUP_KINDS:
            raise click.BadParameter(f"{each!r} is not NAME=KIND; KIND is one of {', '.join(POD_GROUP_KINDS)}")
        found[name] = kind
    return found
