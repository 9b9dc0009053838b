"""The operator's options for fields that new jobs lack, as the frameworks declare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import click

from tarragon.frameworks.registry import FRAMEWORKS

if TYPE_CHECKING:
    from tarragon.frameworks.plugin import FieldOption
    from tarragon.kube.meta import Json, JsonObject

P = ParamSpec("P")


def job_default_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add the options. The command gets the fields of new jobs, by kind, as `job_defaults`."""

    @wraps(command)
    def called(*given: P.args, **options: P.kwargs) -> None:
        others: dict[str, object] = dict(options)
        values = {_parameter(option): others.pop(_parameter(option)) for option in _all_options()}
        command(*given, **others, job_defaults=job_defaults(values))  # type: ignore[arg-type]  # click has the others

    wrapped: Callable[P, None] = called
    for option in reversed(_all_options()):  # click lists the options in reversed order
        wrapped = _click_option(option)(wrapped)
    return wrapped


def job_defaults(values: Mapping[str, Json]) -> dict[str, JsonObject]:
    """The fields by kind. Those with the API's own default are left out."""
    return {
        framework.kind: {
            option.field: values[_parameter(option)]
            for option in framework.operator_options
            if values[_parameter(option)] != option.default
        }
        for framework in FRAMEWORKS
        if framework.operator_options
    }


def _all_options() -> list[FieldOption]:
    return [option for framework in FRAMEWORKS for option in framework.operator_options]


def _parameter(option: FieldOption) -> str:
    """The name by which click passes the option."""
    return option.flag.lstrip("-").replace("-", "_")


def _click_option(option: FieldOption) -> Callable[[Callable[P, None]], Callable[P, None]]:
    is_number = not option.choices
    return click.option(
        option.flag,
        type=click.IntRange(min=1) if is_number else click.Choice(option.choices),
        metavar="N" if is_number else None,
        default=option.default,
        show_default=True,
        help=option.help,
    )
