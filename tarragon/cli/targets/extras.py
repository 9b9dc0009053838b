"""The extras of the package: what commands need beyond the client of a cluster, and what they say where it is missing.

The package alone brings what speaks to a cluster. numpy and cryptography, two thirds of all that a scheduler and a
server of certificates need, come with these extras.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from tarragon.base.errors import TarragonError
from tarragon.cli.output.words import joined
from tarragon.cli.targets.environment import install_command_for
from tarragon.localcluster.kubelet.images.images import current_environment


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra by its name in pyproject.toml, and the modules of it without which nothing that needs it runs."""

    name: str
    modules: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        return [name for name in self.modules if importlib.util.find_spec(name) is None]

    @property
    def install_command(self) -> str:
        """For the environment that runs Tarragon only: there pip and uv keep it, and add what the extra needs.

        In any other environment they would look for `tarragon` on PyPI, where the name is another project's.
        """
        return f"{install_command_for(current_environment())} 'tarragon[{self.name}]'"


LOCAL = Extra("local", ("cryptography", "numpy", "psutil"))
OPERATOR = Extra("operator", ("cryptography", "numpy", "prometheus_client"))
SIMULATE = Extra("simulate", ("numpy",))
"""Without scipy, which it has, too, one of the lower bounds is left out."""


class MissingExtra(TarragonError):
    """A command needs modules that are not installed."""


def require_extra(extra: Extra, user: str) -> None:
    """Raises MissingExtra if modules of the extra are missing; `user` is what needs them."""
    missing = extra.missing
    if missing:
        raise MissingExtra(
            f"{user} needs the extra `{extra.name}`, which is not installed",
            why=f"Python does not find {joined(missing)}",
            remedy=f"install it: {extra.install_command}",
        )


def extra_with(module: str) -> Extra | None:
    """Returns the extra that brings a module, for a command that has found it missing."""
    return next((extra for extra in (LOCAL, OPERATOR) if module.partition(".")[0] in extra.modules), None)
