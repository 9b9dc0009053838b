"""The options of `run`, `submit` and `init` for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import click
from click.core import ParameterSource

from tarragon.cli.manifest.script import KINDS, ScriptOptions, is_script

_KEY = "tarragon.script"
_GPUS = re.compile(r"\d+|0?\.\d+")

Value = str | int
Parser = Callable[[str], str] | click.Choice[str] | click.IntRange


def script_options(prefix: str = "for a script: ") -> list[click.Option]:
    """Returns the options. A command's function reads them with `script_options_of(ctx)`, not from its arguments."""
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
        _option("--cpu", str, "N", f"{prefix}CPUs of each replica: 2, 500m"),
        _option("--memory", str, "AMOUNT", f"{prefix}memory of each replica: 2Gi"),
        _option("--image", str, "IMAGE", f"{prefix}the image that runs it on a cluster"),
        _option("--name", str, "NAME", f"{prefix}the job's name; by default the script's"),
        _option("--kind", click.Choice([*KINDS]), None, f"{prefix}the kind of job; by default by its imports"),
    ]


def script_options_of(ctx: click.Context) -> ScriptOptions:
    given = _given(ctx)
    return ScriptOptions(
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


def checked_script_options(ctx: click.Context, file: str, args: Sequence[str]) -> ScriptOptions:
    """Returns the options with the script's own arguments.

    Raises UsageError if FILE is a manifest, which has these things in its fields.
    """
    # Defaults of the config file and of the environment are meant for scripts.
    given = [flag for flag in _given(ctx) if ctx.get_parameter_source(flag.lstrip("-")) is ParameterSource.COMMANDLINE]
    if not is_script(file) and args:
        raise click.UsageError(f"unexpected arguments after {file}: {' '.join(args)}; only scripts take arguments")
    if not is_script(file) and given:
        raise click.UsageError(
            f"{', '.join(given)}: for scripts only; {file} is a manifest, of which --set changes any field: "
            "--set spec.tfReplicaSpecs.Worker.replicas=4"
        )
    return replace(script_options_of(ctx), args=args)


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
