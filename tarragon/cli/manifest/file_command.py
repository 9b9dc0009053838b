"""A command that takes FILE and may change what is in it: what `run` and `submit` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from tarragon.cli.manifest.loading import Changes
from tarragon.cli.options.arguments import assignment, folder
from tarragon.cli.options.settings import Command

_KEY = "tarragon.changes"

Pairs = tuple[tuple[str, str], ...]
Folders = tuple[tuple[str, Path], ...]


class FileCommand(Command):
    """Its function finds what was said of the file by `changes(ctx)`, not among its arguments."""

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)
        own = [
            click.Option(["-f", "--file", "option"], metavar="FILE", help="the same FILE, as kubectl has it"),
            _pairs("--set", assignment, "PATH=VALUE", "change a value: spec.tfReplicaSpecs.Worker.replicas=3", _set),
            _pairs(
                "--set-string",
                assignment,
                "PATH=TEXT",
                "the same for what is a text, whatever it looks like",
                _texts,
            ),
            _pairs("--set-json", assignment, "PATH=JSON", 'the same for lists and maps: spec.x=["a","b"]', _jsons),
            _pairs("--env", folder, "IMAGE=FOLDER", "the environment that stands for an image here", _env),
            _pairs("--volume", folder, "NAME=FOLDER", "the folder that stands for a volume here", _volume),
            _flag("--cpu-only", "take the requests for GPUs out of the job", _cpu_only),
            click.Option(
                ["--idempotency-key"],
                metavar="KEY",
                help="submitting again with the same KEY changes nothing, whatever became of the job",
                expose_value=False,
                callback=_key,
            ),
            _flag("--replace", "on a cluster: delete a job of that name that has ended", _replace),
        ]
        for option in own:
            self.name_variable(option)
        self.params += own


def one_file(file: str | None, option: str | None) -> str:
    """FILE as an argument or by -f. Raises UsageError unless it is exactly one of them."""
    if (file is None) == (option is None):
        raise click.UsageError("name one FILE")
    return file or option or ""


def changes(ctx: click.Context) -> Changes:
    """What the command line has said."""
    found = ctx.meta.get(_KEY)
    return found if isinstance(found, Changes) else Changes()


def _pairs(
    name: str,
    kind: Callable[[str], tuple[str, str]] | Callable[[str], tuple[str, Path]],
    form: str,
    text: str,
    callback: Callable[[click.Context, click.Parameter, Pairs], None]
    | Callable[[click.Context, click.Parameter, Folders], None],
) -> click.Option:
    return click.Option(
        [name], type=kind, multiple=True, metavar=form, help=text, expose_value=False, callback=callback
    )


def _flag(name: str, text: str, callback: Callable[[click.Context, click.Parameter, object], None]) -> click.Option:
    return click.Option([name], is_flag=True, help=text, expose_value=False, callback=callback)


def _set(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), values=value)


def _texts(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), texts=value)


def _jsons(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), jsons=value)


def _key(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), idempotency_key=value or "")


def _env(ctx: click.Context, _: click.Parameter, value: Folders) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), environments=dict(value))


def _volume(ctx: click.Context, _: click.Parameter, value: Folders) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), volumes=dict(value))


def _cpu_only(ctx: click.Context, _: click.Parameter, value: object) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), is_cpu_only=bool(value))


def _replace(ctx: click.Context, _: click.Parameter, value: object) -> None:
    ctx.meta[_KEY] = replace(changes(ctx), is_replacing=bool(value))
