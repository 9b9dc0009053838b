"""The options of `run` and `submit` that change the job in FILE."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import click

from tarragon.cli.manifest.loading import Overrides
from tarragon.cli.manifest.script_manifest import is_script
from tarragon.cli.manifest.script_options import ScriptCommand, checked_script_options, script_options_of
from tarragon.cli.options.arguments import assignment, env_source, folder_mapping, variable
from tarragon.cli.targets.completion import complete_file

_KEY = "tarragon.changes"

_SURELY_MEANT = 0.85
"""The similarity of a misspelled option. Others are probably the script's own."""
_INTERPRETERS = frozenset({"python", "python3", "bash", "sh"})
"""What users type before a script, and Tarragon adds itself."""
_SHORT = 2
"""Characters of an option such as `-w`."""
_FEW = 3
"""The most options that a short one may stand for: of more, none is likely."""
DRY_RUN = "--dry-run"
DRY_RUNS = ("client", "server")
"""The values of the option. Without one, it is the first."""

Pairs = tuple[tuple[str, str], ...]
Folders = tuple[tuple[str, Path], ...]


class FileCommand(ScriptCommand):
    """A command with options that change FILE. Its function reads them with `file_input`, not from its
    arguments.
    """

    option_prefix = "for a script: "

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args, **facts)
        own = [
            click.Option(["-f", "--file", "option"], metavar="FILE", help="FILE as an option, as in kubectl"),
            _pairs("--set", assignment, "PATH=VALUE", "set a value: spec.tfReplicaSpecs.Worker.replicas=3", _set),
            _pairs(
                "--set-string",
                assignment,
                "PATH=TEXT",
                "set a value and keep it a string",
                _texts,
            ),
            _pairs("--set-json", assignment, "PATH=JSON", 'set a list or a map: spec.x=["a","b"]', _jsons),
            click.Option(
                ["-e", "--env", "variables"],
                type=variable,
                multiple=True,
                metavar="KEY=VALUE",
                help="set a variable in all replicas; KEY alone passes yours",
                expose_value=False,
                callback=_env,
            ),
            click.Option(
                ["--env-file"],
                multiple=True,
                metavar="FILE",
                help="set the variables of a .env file",
                expose_value=False,
                callback=_env_files,
                shell_complete=complete_file,
            ),
            click.Option(
                ["--env-from"],
                type=env_source,
                multiple=True,
                metavar="secret/NAME",
                help="set all variables of a Secret or configmap/NAME",
                expose_value=False,
                callback=_env_sources,
            ),
            _pairs("--image-env", folder_mapping, "IMAGE=FOLDER", "run an image in this Python environment", _images),
            _pairs("--volume", folder_mapping, "NAME=FOLDER", "use this folder as a volume", _volume),
            _flag("--cpu-only", "remove the GPU requests from the job", _cpu_only),
            click.Option(
                ["--idempotency-key"],
                metavar="KEY",
                help="submit the job at most once per KEY; later attempts change nothing",
                expose_value=False,
                callback=_key,
            ),
            _flag("--replace", "on a cluster: delete a finished job of that name first", _replace),
        ]
        self.add_options(own)

    def parse_own_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = args if ctx.resilient_parsing else with_dry_run_value(args)
        try:
            return super().parse_own_args(ctx, given)
        except click.NoSuchOption as error:
            script = next(filter(is_script, args), None)
            if script is None or script_options_of(ctx).args:
                raise
            hint = _option_hint(error, script, args, [name for each in self.params for name in each.opts])
            raise click.UsageError(f"no such option: {error.option_name}; {hint}", ctx) from error


def _option_hint(error: click.NoSuchOption, script: str, args: Sequence[str], options: Sequence[str]) -> str:
    """Returns what to type instead of an option that there is not. It may be the script's own."""
    unknown = error.option_name
    near = difflib.get_close_matches(unknown, error.possibilities or (), n=1, cutoff=_SURELY_MEANT)
    if near:
        return f"did you mean {near[0]}?"
    own = f"those of the script follow `--`: `{script} -- {unknown}`"
    begun = [name for name in options if name.startswith(f"-{unknown}")] if len(unknown) == _SHORT else []
    if not 1 <= len(begun) <= _FEW:
        return own
    after = args[args.index(unknown) + 1 :][:1] if unknown in args and len(begun) == 1 else ()
    value = [word for word in after if not word.startswith("-") and not is_script(word)]
    meant = " ".join([" or ".join(begun), *value])
    return f"did you mean {meant}? {own[0].upper()}{own[1:]}"


def with_dry_run_value(args: Sequence[str]) -> list[str]:
    """Makes `--dry-run FILE` a dry run by the client: click would take FILE for the value of the option."""
    return [
        f"{DRY_RUN}={DRY_RUNS[0]}" if word == DRY_RUN and after not in DRY_RUNS else word
        for word, after in zip_longest(args, args[1:])
    ]


def file_argument(file: str | None, option: str | None) -> str:
    """Returns FILE from the argument or from -f. Raises UsageError unless exactly one of them is given."""
    if (file is None) == (option is None):
        raise click.UsageError("give exactly one FILE")
    return file or option or ""


@dataclass(frozen=True, slots=True)
class FileInput:
    """FILE, and the changes to its job that the command line asks for."""

    name: str
    changes: Overrides


def file_input(ctx: click.Context, words: Sequence[str], option: str | None) -> FileInput:
    """Returns FILE, from the arguments or from -f, and its changes. What follows `--` is the script's own.

    Raises UsageError unless there is one FILE, or if it is a manifest and gets what only scripts take.
    """
    named = [*words, *([] if option is None else [option])]
    if len(named) > 1 and named[0] in _INTERPRETERS and is_script(named[1]):
        script = " -- ".join(filter(None, (named[1], " ".join(named[2:]))))
        raise click.UsageError(f"a script needs no {named[0]} before it; type `{ctx.info_name} {script}`")
    if len(named) > 1 and is_script(named[0]):
        raise click.UsageError(
            f"unexpected argument {named[1]}; those of the script follow `--`: `{named[0]} -- {' '.join(named[1:])}`"
        )
    if len(named) == 1 and (meant := _meant_by_line(named[0])):
        raise click.UsageError(f"{named[0]!r} is one argument; type `{ctx.info_name} {meant}`")
    if len(named) != 1:
        raise click.UsageError("give exactly one FILE")
    return FileInput(named[0], replace(overrides_of(ctx), script=checked_script_options(ctx, named[0])))


def _meant_by_line(file: str) -> str:
    """Returns what to type instead of a whole command line in quotes; empty if FILE is none."""
    try:
        words = shlex.split(file)
    except ValueError:
        return ""
    own = words[1:] if words and words[0] in _INTERPRETERS else words
    if len(words) < 2 or not own or not is_script(own[0]) or os.path.lexists(file):  # noqa: PLR2004 - a file's name
        return ""
    return " -- ".join(filter(None, (own[0], shlex.join(own[1:]))))


def overrides_of(ctx: click.Context) -> Overrides:
    """Returns the changes that the command line asks for."""
    found = ctx.meta.get(_KEY)
    return found if isinstance(found, Overrides) else Overrides()


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
    ctx.meta[_KEY] = replace(overrides_of(ctx), values=value)


def _texts(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), strings=value)


def _jsons(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), jsons=value)


def _key(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), idempotency_key=value or "")


def _env(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), variables=value)


def _env_files(ctx: click.Context, _: click.Parameter, value: Sequence[str]) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), env_files=value)


def _env_sources(ctx: click.Context, _: click.Parameter, value: Pairs) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), env_sources=value)


def _images(ctx: click.Context, _: click.Parameter, value: Folders) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), environments=dict(value))


def _volume(ctx: click.Context, _: click.Parameter, value: Folders) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), volumes=dict(value))


def _cpu_only(ctx: click.Context, _: click.Parameter, value: object) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), is_cpu_only=bool(value))


def _replace(ctx: click.Context, _: click.Parameter, value: object) -> None:
    ctx.meta[_KEY] = replace(overrides_of(ctx), replaces_finished=bool(value))
