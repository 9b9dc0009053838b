"""The options of `run`, `submit` and `init` for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import click
from click.core import ParameterSource

from tarragon.base.quantity import parse_milli
from tarragon.cli.manifest.script_manifest import KINDS, ScriptOptions, is_script
from tarragon.cli.options.settings import TarragonCommand

_KEY, _ARGS = "tarragon.script", "tarragon.script.args"
_LEAST_MEMORY = 2**20
"""Bytes. Who wrote less has left out the unit."""
_GPUS = re.compile(r"\d+|0?\.\d+")

Value = str | int
Parser = Callable[[str], str] | click.Choice[str] | click.IntRange


class ScriptCommand(TarragonCommand):
    """A command for scripts, whose own arguments follow `--`. Its function reads both with `script_options_of(ctx)`."""

    option_prefix = ""
    """What the help of these options begins with."""

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)
        self.add_options(_script_options(self.option_prefix))

    def add_options(self, options: Sequence[click.Option]) -> None:
        for option in options:
            self.name_variable(option)
        self.params += options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_ARGS] = args[end + 1 :]
        return self.parse_own_args(ctx, args[:end])

    def parse_own_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments that are not the script's."""
        return super().parse_args(ctx, args)


def _script_options(prefix: str) -> list[click.Option]:
    return [
        _option("--workers", click.IntRange(1), "N", f"{prefix}workers; 1 by default"),
        _option("--ps", click.IntRange(0), "N", f"{prefix}parameter servers"),
        click.Option(
            ["--chief"],
            is_flag=True,
            help=f"{prefix}a chief beside the workers",
            expose_value=False,
            callback=_remember("--chief"),
        ),
        _option("--gpus", _gpus, "N", f"{prefix}GPUs of each worker; 0.5 shares one"),
        _option("--cpu", _cpu, "N", f"{prefix}CPUs of each replica: 2, 500m"),
        _option("--memory", _memory, "AMOUNT", f"{prefix}memory of each replica: 2Gi"),
        _option("--image", str, "IMAGE", f"{prefix}the image that runs it on a cluster"),
        _option("--name", str, "NAME", f"{prefix}the job's name; by default the script's"),
        _option("--kind", click.Choice([*KINDS]), None, f"{prefix}the kind of job; by default by its imports"),
    ]


def _cpu(text: str) -> str:
    if _amount(text) is None:
        raise click.BadParameter(f"{text!r} is not a number of CPUs; use for example 2, 0.5 or 500m")
    return text


def _memory(text: str) -> str:
    amount = _amount(text)
    if amount is None:
        raise click.BadParameter(f"{text!r} is not an amount of memory; use for example 500Mi or 2Gi")
    if amount < _LEAST_MEMORY:
        raise click.BadParameter(f"{text!r} means that many bytes; use for example {text}Gi")
    return text


def _amount(text: str) -> float | None:
    """Returns what a quantity of Kubernetes amounts to; None if it is none, or not above 0."""
    try:
        amount = parse_milli(text) / 1000
    except (ValueError, OverflowError):
        return None
    return amount if amount > 0 else None


def script_options_of(ctx: click.Context) -> ScriptOptions:
    given = _given(ctx)
    return ScriptOptions(
        args=ctx.meta.get(_ARGS, ()),
        name=str(given.get("--name", "")),
        kind=str(given.get("--kind", "")),
        image=str(given.get("--image", "")),
        workers=int(given.get("--workers", 1)),
        parameter_servers=int(given.get("--ps", 0)),
        has_chief="--chief" in given,
        cpu=str(given.get("--cpu", "")),
        memory=str(given.get("--memory", "")),
        gpus=str(given.get("--gpus", "")),
    )


def checked_script_options(ctx: click.Context, file: str) -> ScriptOptions:
    """Returns the options. Raises UsageError if FILE is a manifest, which has these things in its fields."""
    options = script_options_of(ctx)
    # Defaults of the config file and of the environment are meant for scripts.
    given = [flag for flag in _given(ctx) if ctx.get_parameter_source(flag.lstrip("-")) is ParameterSource.COMMANDLINE]
    if not is_script(file) and options.args:
        words = " ".join(options.args)
        raise click.UsageError(f"unexpected arguments after {file}: {words}; only scripts take arguments")
    if not is_script(file) and given:
        raise click.UsageError(
            f"{', '.join(given)}: for scripts only; {file} is a manifest, of which --set changes any field: "
            "--set spec.tfReplicaSpecs.Worker.replicas=4"
        )
    return options


def _given(ctx: click.Context) -> Mapping[str, Value]:
    found: Mapping[str, Value] = ctx.meta.get(_KEY, {})
    return found


def _gpus(text: str) -> str:
    if _GPUS.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is not a number of GPUs; use for example 1 or 0.5")
    return f"{float(text):g}"


def _option(flag: str, kind: Parser, form: str | None, text: str) -> click.Option:
    return click.Option([flag], type=kind, metavar=form, help=text, expose_value=False, callback=_remember(flag))


def _remember(flag: str) -> Callable[[click.Context, click.Parameter, Value | None], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Value | None) -> None:
        if value:
            ctx.meta[_KEY] = {**_given(ctx), flag: value}

    return callback
