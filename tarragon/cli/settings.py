"""What every command is told beside its own options: which cluster, which namespace, how to look."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from tarragon.cli.terminal import ColorChoice, Terminal, here

if TYPE_CHECKING:
    from tarragon.localcluster.home import Home

LOCAL = "local"
EVERYWHERE = (
    "Everywhere: --context NAME, -n NAMESPACE, -v, --color auto|always|never. Every option has a "
    "variable, too: TARRAGON_NAMESPACE=ml tarragon list."
)
NAMESPACE_FORM = "lower-case letters, digits and -, at most 63 of them"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_COLORS: Mapping[str, ColorChoice] = MappingProxyType({"auto": "auto", "always": "always", "never": "never"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`context`: empty or `local` is the embedded cluster of this home. `given_namespace` is empty where none was."""

    context: str = ""
    given_namespace: str = ""
    is_verbose: bool = False
    color: ColorChoice = "auto"

    @property
    def namespace(self) -> str:
        return self.given_namespace or "default"

    def terminal(self) -> Terminal:
        return here(self.color)


def home() -> Home:
    """The embedded cluster that this user, or this TARRAGON_HOME, has."""
    from tarragon.localcluster.home import Home

    return Home.of(os.environ)


class Command(click.Command):
    """A command that takes the global options behind its name, too: `tarragon list -n research`."""

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)  # type: ignore[arg-type] # click's own signature, passed on
        self.params += global_options(are_hidden=True)
        for param in self.params:
            self.name_variable(param)

    def name_variable(self, param: click.Parameter) -> None:
        """After the flag, as users see it: TARRAGON_RUN_TIMEOUT for `run --timeout`, whatever we call it inside."""
        if isinstance(param, click.Option) and param.allow_from_autoenv:
            flag = max(param.opts, key=len).lstrip("-") if max(map(len, param.opts)) > len("-o") else param.name
            param.envvar = f"TARRAGON_{self.name}_{flag}".upper().replace("-", "_")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(EVERYWHERE)


def global_options(*, are_hidden: bool = False) -> list[click.Parameter]:
    """Only those of the first page are read from TARRAGON_CONTEXT and the like: the others come later and would win."""

    def option(*names: str, text: str, kind: click.Choice[str] | None = None) -> click.Option:
        is_flag = "--verbose" in names
        return click.Option(
            names,
            type=kind,
            is_flag=is_flag,
            help=text,
            hidden=are_hidden,
            expose_value=False,
            allow_from_autoenv=not are_hidden,
            callback=_remember,
        )

    return [
        option("--context", text="the cluster; `local`, the embedded one, is the default"),
        option("-n", "--namespace", text="`default` by default"),
        option("-v", "--verbose", text="say more, and show tracebacks"),
        option("--color", text="auto by default", kind=click.Choice(list(_COLORS))),
    ]


def is_namespace(name: str) -> bool:
    """Whether Kubernetes takes it as the name of one."""
    return _LABEL.fullmatch(name) is not None


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if not value:
        return
    if param.name == "namespace" and not is_namespace(str(value)):
        raise click.BadParameter(f"{value!r} is no name of a namespace: {NAMESPACE_FORM}", ctx, param)
    before = ctx.obj if isinstance(ctx.obj, Settings) else Settings()
    ctx.obj = _CHANGES[param.name or ""](before, str(value))


_CHANGES: Mapping[str, Callable[[Settings, str], Settings]] = MappingProxyType(
    {
        "context": lambda before, value: replace(before, context=value),
        "namespace": lambda before, value: replace(before, given_namespace=value),
        "verbose": lambda before, _: replace(before, is_verbose=True),
        "color": lambda before, value: replace(before, color=_COLORS[value]),
    }
)
