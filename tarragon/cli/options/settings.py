"""The global options: cluster, namespace, verbosity and colours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tarragon import __version__
from tarragon.cli.options.foreign_names import is_surplus_understood, meant_argument
from tarragon.cli.options.help_layout import HelpContext
from tarragon.cli.output.terminal import ColorChoice, Terminal, current_terminal
from tarragon.kube import name_validation

if TYPE_CHECKING:
    from tarragon.localcluster.home.home import Home

LOCAL = "local"
GLOBAL_OPTIONS_HELP = (
    "Global options: --context NAME, --kubeconfig FILE, -n NAMESPACE, -v, -q, --color auto|always|never, --no-color. "
    "Environment variables set options too (TARRAGON_NAMESPACE=ml tarragon list); `tarragon config` saves defaults."
)
NAMESPACE_FORM = "lowercase letters, digits and '-', at most 63 characters"
_COLORS: Mapping[str, ColorChoice] = MappingProxyType({"auto": "auto", "always": "always", "never": "never"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The values of the global options. `context`, `kubeconfig` and `explicit_namespace` are empty if not given.

    `is_plugin`: the program was called as `kubectl tarragon` and uses kubectl's cluster by default.
    """

    context: str = ""
    kubeconfig: str = ""
    is_plugin: bool = False
    explicit_namespace: str = ""
    is_verbose: bool = False
    is_quiet: bool = False
    color: ColorChoice = "auto"
    has_no_color: bool = False
    """Whether --no-color was given, which wins over `color`, wherever that comes from."""

    @property
    def is_local(self) -> bool:
        """Whether the embedded cluster is meant: the context `local`, or the default outside of kubectl."""
        return self.context == LOCAL or not (self.context or self.kubeconfig or self.is_plugin)

    @property
    def program(self) -> str:
        """The program's name in help texts."""
        return "kubectl tarragon" if self.is_plugin else "tarragon"

    def terminal(self) -> Terminal:
        terminal = current_terminal("never" if self.has_no_color else self.color)
        return replace(terminal, is_quiet=True, is_live=False) if self.is_quiet else terminal


def embedded_home() -> Home:
    """Returns the home of this user's embedded cluster, which TARRAGON_HOME may set."""
    from tarragon.localcluster.home.home import Home

    return Home.from_environment(os.environ)


class TarragonCommand(click.Command):
    """A command that also takes the global options after its name: `tarragon list -n research`."""

    context_class = HelpContext

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)  # type: ignore[arg-type] # click's own signature, passed on
        own = {name for param in self.params for name in param.opts}
        # A command's own option wins over the global one: `up --kubeconfig FILE` writes a kubeconfig.
        self.params += [param for param in global_options(are_hidden=True) if not own & {*param.opts}]
        for param in self.params:
            self.name_variable(param)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and not asks_for_help(args):
            apply_config(self, ctx, str(self.name))
        # click's own error would not say what to type instead.
        ctx.allow_extra_args = is_surplus_understood(str(self.name))
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            raise _with_origin(error, ctx) from error
        if rest and ctx.allow_extra_args and not ctx.resilient_parsing:
            hint = meant_argument(str(self.name), rest[0], str(ctx.params.get("name")))
            raise click.UsageError(f"unexpected argument {rest[0]}; {hint}", ctx)
        return rest

    def name_variable(self, param: click.Parameter) -> None:
        """Names the option's variable after its flag: TARRAGON_RUN_TIMEOUT for `run --timeout`."""
        if isinstance(param, click.Option) and param.allow_from_autoenv:
            from tarragon.cli.options.config_file import flag_name

            param.envvar = f"TARRAGON_{self.name}_{flag_name(param)}".upper().replace("-", "_")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from tarragon.cli.options.example_lines import write_examples

        write_examples(ctx, formatter)
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(GLOBAL_OPTIONS_HELP)


def asks_for_help(args: Sequence[str]) -> bool:
    """Whether help is requested: it must work even if the configuration is invalid."""
    return "--help" in args or "-h" in args


def _with_origin(error: click.BadParameter, ctx: click.Context) -> click.BadParameter:
    """Adds the config file's path to an error about a value from it, which the user did not type."""
    from tarragon.cli.options.config_file import config_path

    name = error.param.name if error.param is not None else None
    if name is not None and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
        return click.BadParameter(f"{error.message} (from {config_path(os.environ)})", ctx, error.param)
    return error


def apply_config(command: click.Command, ctx: click.Context, section: str) -> None:
    """Makes the values of the config file the command's defaults. Raises InvalidConfig."""
    from tarragon.cli.options.config_file import default_map, read_config

    settings = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
    ctx.default_map = dict(default_map(command, read_config(), section, is_plugin=settings.is_plugin))


logs_option = click.option(
    "--logs",
    "logs_of_jobs",
    type=click.Choice(["json", "text"]),
    default="text",
    show_default=True,
    allow_from_autoenv=False,
    envvar=["TARRAGON_LOGS", "TARRAGON_OPERATOR_LOGS", "TARRAGON_UP_LOGS"],
    help="log format of replicas whose job has no annotation tarragon.dev/logs",
)
"""For commands that start an operator. They share one variable, because a background cluster gets no flags."""


def global_options(*, are_hidden: bool = False) -> list[click.Parameter]:
    """Returns the global options, for the root command or (hidden) for a subcommand.

    Only the root's options read TARRAGON_CONTEXT and the like: the subcommand's are parsed later and would win.
    """

    def option(*names: str, text: str, kind: click.Choice[str] | None = None) -> click.Option:
        is_flag = names[-1] in _FLAGS
        return click.Option(
            names,
            type=kind,
            is_flag=is_flag,
            help=text,
            hidden=are_hidden,
            expose_value=False,
            allow_from_autoenv=not are_hidden,
            callback=_remember,
            metavar=_METAVARS.get(names[-1]),
            shell_complete=_COMPLETED.get(names[-1]),
        )

    return [
        option("--context", text="the cluster to use; by default `local`, the embedded one"),
        option("--kubeconfig", text="path to a kubeconfig; without --context, its current context is used"),
        option("-n", "--namespace", text="the namespace to use; by default the context's"),
        option("-v", "--verbose", text="print more details, and tracebacks of errors"),
        option("-q", "--quiet", text="print only results and errors: no notes, no progress"),
        option("--color", text="when to use colors; by default auto", kind=click.Choice(list(_COLORS))),
        option("--no-color", text="the same as --color never"),
    ]


def version_option() -> click.Option:
    """Returns `-V` and `--version` of the root command. It is no setting: it ends the program."""
    return click.Option(
        ["-V", "--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        allow_from_autoenv=False,
        callback=_print_version,
        help="print the version of tarragon, and exit",
    )


def _print_version(ctx: click.Context, _: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"tarragon {__version__}")
        ctx.exit()


def _contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from tarragon.cli.targets.completion import complete_context

    return complete_context(ctx, param, incomplete)


def _namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from tarragon.cli.targets.completion import complete_namespace

    return complete_namespace(ctx, param, incomplete)


def _files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    from tarragon.cli.targets.completion import complete_file

    return complete_file(ctx, param, incomplete)


_FLAGS = frozenset({"--verbose", "--quiet", "--no-color"})
_METAVARS = MappingProxyType({"--context": "NAME", "--kubeconfig": "FILE", "--namespace": "NAMESPACE"})
_COMPLETED = MappingProxyType({"--context": _contexts, "--kubeconfig": _files, "--namespace": _namespaces})


def is_namespace(name: str) -> bool:
    """Whether it is a valid name of a namespace."""
    return not name_validation.label(name)


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if not value:
        return
    if param.name == "namespace" and not is_namespace(str(value)):
        raise click.BadParameter(f"{value!r} is not a valid namespace name: use {NAMESPACE_FORM}", ctx, param)
    before = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
    ctx.obj = _CHANGES[param.name or ""](before, str(value))


_CHANGES: Mapping[str, Callable[[GlobalOptions, str], GlobalOptions]] = MappingProxyType(
    {
        "context": lambda before, value: replace(before, context=value),
        "kubeconfig": lambda before, value: replace(before, kubeconfig=value),
        "namespace": lambda before, value: replace(before, explicit_namespace=value),
        "verbose": lambda before, _: replace(before, is_verbose=True),
        "quiet": lambda before, _: replace(before, is_quiet=True),
        "no_color": lambda before, _: replace(before, has_no_color=True),
        "color": lambda before, value: replace(before, color=_COLORS[value]),
    }
)
