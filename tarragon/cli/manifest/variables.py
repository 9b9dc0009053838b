"""The variables of -e and --env-file: where their values come from, and which are images in the former spelling."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.manifest.files import UnreadableFile, read_file
from tarragon.cli.options.arguments import is_variable_name, value_faults
from tarragon.cli.output.words import joined
from tarragon.kube.meta import JsonObject
from tarragon.kube.pod_validation import main_container
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap

FORMER_SPELLING = "note: --env IMAGE=FOLDER still works, but is now --image-env: --env sets variables"

_OFTEN_EXPECTED = (
    *("PYTHONPATH", "OMP_NUM_THREADS", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS", "XLA_FLAGS", "JAX_PLATFORMS"),
    *("HF_HOME", "HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_URI"),
)
"""Variables of the caller that trainings read, and that a pod does not get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvOptions:
    """The pairs of -e, split into variables and, in the former spelling, folders for images."""

    variables: Mapping[str, str]
    environments: Mapping[str, Path] = field(default_factory=dict)


def split_env_options(
    pairs: Sequence[tuple[str, str]], images: Collection[str], is_folder: Callable[[str], bool]
) -> EnvOptions:
    """Separates variables from folders for `images`, the job's. `python=venv` could be both.

    It is a folder for an image if a pattern of that name matches one of the job's and the folder exists.
    """
    environments = {
        name: Path(value).expanduser().absolute()
        for name, value in pairs
        if not is_variable_name(name) or (value and _matches(name, images) and is_folder(value))
    }
    return EnvOptions(
        variables={name: value for name, value in pairs if name not in environments}, environments=environments
    )


def omitted_variables(job: JsonObject, container: str, caller: Mapping[str, str]) -> list[str]:
    """Returns the caller's variables that trainings often expect, and that no main container of the job sets."""
    mains = [main_container(template, container) or {} for _, template in pod_templates(job)]
    given = {each.get("name") for main in mains for each in main.get("env") or ()}
    return [name for name in _OFTEN_EXPECTED if caller.get(name) and name not in given]


def omission_note(names: Sequence[str]) -> str:
    """`note: replicas don't get your PYTHONPATH; -e PYTHONPATH passes it`."""
    options = " ".join(f"-e {name}" for name in names)
    return f"note: replicas don't get your {joined(names)}; {options} passes {'it' if len(names) == 1 else 'them'}"


def read_env_file(name: str, caller: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a file of lines `KEY=VALUE`, with quotes and comments as in a shell.

    The value of a line with `KEY` alone is the caller's. Raises UnreadableFile for each line that is neither.
    """
    from dotenv.parser import parse_stream

    try:
        text = read_file(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{name} is not a text file", why=f"byte {error.start} is not UTF-8") from error
    found, faults = {}, []
    for line in parse_stream(io.StringIO(text)):
        if line.error or (line.key is not None and not is_variable_name(line.key)):
            faults.append(f"line {line.original.line}: {line.original.string.strip()!r} is not KEY=VALUE")
        elif line.key is not None and line.value is None and line.key not in caller:
            faults.append(f"line {line.original.line}: {line.key} has no value, and is not set in your environment")
        elif line.key is not None:
            value = caller[line.key] if line.value is None else line.value
            found[line.key] = value
            faults += [f"line {line.original.line}: {line.key} {fault}" for fault in value_faults(value)]
    if faults:
        raise UnreadableFile(f"--env-file {name} can't be used", why="\n".join(faults))
    return found


def _matches(pattern: str, images: Collection[str]) -> bool:
    mapped = ImageMap(rules=((pattern, Environment(folder=Path("/"))),))
    return any(mapped.environment_of(image).folder == Path("/") for image in images)
