"""`tarragon init`: writes a commented manifest next to a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.manifest.loading import invalid_manifest
from tarragon.cli.manifest.local_images import ScriptNeeds, image_map, script_needs
from tarragon.cli.manifest.overrides import with_environment
from tarragon.cli.manifest.script_manifest import INTERPRETERS, UnusableScript, is_script, script_manifest
from tarragon.cli.manifest.script_options import ScriptCommand, script_options_of
from tarragon.cli.options.settings import GlobalOptions, embedded_home
from tarragon.cli.output.yaml_style import commented_yaml
from tarragon.cli.targets.completion import complete_file
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import JsonObject

MANIFEST = "job.yaml"
_USUAL = ("train.py", "main.py")
"""The scripts that are taken if the folder has several."""


@click.command("init", cls=ScriptCommand)
@click.argument("script", metavar="[SCRIPT] [-- ARGS]", required=False, shell_complete=complete_file)
@click.option("-o", "--output", "target", metavar="FILE", default=MANIFEST, show_default=True, help="- for stdout")
@click.option("--force", "overwrites", is_flag=True, help="overwrite an existing FILE")
@click.pass_context
def command(ctx: click.Context, *, script: str | None, target: str, overwrites: bool) -> int:
    """Write a manifest for SCRIPT, with comments, to change and to keep: `tarragon run` and kubectl take it.

    Without SCRIPT it is the one in the current folder. ARGS are the script's own.

    \b
    Exit codes: 0 written, 1 FILE exists, 2 no such script
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    name = script or _only_script()
    if not is_script(name):
        raise UnusableScript(f"{name} is no script", why=f"the names of scripts end with {' or '.join(INTERPRETERS)}")
    made = script_manifest(name, script_options_of(ctx), is_shipped=False)
    *_, job = made.documents
    needs = _needs_here(made.framework, job)
    job = with_environment(job, needs.variables, made.framework.main_container)
    text = commented_yaml(job, {**made.support.comments, **_variable_comments(job, needs)}) + "\n"
    _require_valid(name, text)
    if target != "-":
        _write(Path(target), text, overwrites=overwrites)
    for note in (*made.notes, *needs.notes):
        click.echo(note, err=True)
    if target == "-":
        click.echo(text, nl=False)
        return 0
    program = ctx.ensure_object(GlobalOptions).program
    click.echo(f"{target} written; now: {program} run {target}", err=True)
    return 0


def _only_script() -> str:
    scripts = sorted(each.name for each in Path().iterdir() if each.suffix in INTERPRETERS and each.is_file())
    usual = [each for each in _USUAL if each in scripts]
    if len(scripts) == 1 or usual:
        return usual[0] if usual else scripts[0]
    raise UnusableScript(
        "which script?",
        why=f"{Path.cwd()} has {', '.join(scripts) if scripts else 'no script (.py, .sh)'}",
        remedy="name it: tarragon init SCRIPT",
    )


def _needs_here(framework: Framework, job: JsonObject) -> ScriptNeeds:
    """Returns what `tarragon run SCRIPT` would set on this machine for several workers: users edit their number."""
    images, _ = image_map(embedded_home(), {})
    return script_needs(job, framework, images, Path.cwd())


def _variable_comments(job: JsonObject, needs: ScriptNeeds) -> dict[str, Sequence[str]]:
    """Returns the comments for the variables that `needs` has added. The main container of a script is the only one."""
    lines = [f"{name}: {reason}." for name, reason in needs.reasons.items()]
    lines += ["On a cluster, the image must have it, too."] if lines else []
    return {f"{path}.containers[0].env": lines for path, _ in pod_templates(job)}


def _require_valid(name: str, text: str) -> None:
    """Raises InvalidManifest with all problems that the options have caused, such as a bad quantity."""
    from tarragon.plan.input.decode_and_validate import decode_and_validate
    from tarragon.plan.input.manifest import read_manifest

    found = read_manifest(text)
    decoded = [decode_and_validate(each.framework, each.manifest) for each in found.jobs]
    problems = [*found.problems, *(problem for each in decoded for problem in each.all_problems)]
    if problems:
        raise invalid_manifest(name, problems)


def _write(target: Path, text: str, *, overwrites: bool) -> None:
    try:
        with target.open("w" if overwrites else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise TarragonError(
            f"{target} already exists", remedy="--force overwrites it, -o FILE names another"
        ) from error
    except OSError as error:
        raise TarragonError(f"can't write {target}", why=error.strerror or str(error)) from error
