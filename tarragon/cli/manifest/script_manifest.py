"""Makes the manifest of a job from a script: `tarragon run train.py --workers 4`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.cli.manifest.files import UnreadableFile, similar_file
from tarragon.cli.manifest.script_imports import ScriptCode, code_of_script
from tarragon.cli.options.arguments import value_faults
from tarragon.cli.output.words import joined
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.script_job import CHIEF, PARAMETER_SERVERS, SCRIPT_FOLDER, ScriptJob, ScriptSupport
from tarragon.kube.meta import JsonObject

INTERPRETERS: Mapping[str, Sequence[str]] = MappingProxyType({".py": ("python", "-u"), ".sh": ("bash",)})
"""How a script runs, by the ending of its name."""
KINDS: Mapping[str, tuple[Framework, ScriptSupport]] = MappingProxyType(
    {
        framework.kind.lower(): (framework, framework.scripts)
        for framework in FRAMEWORKS
        if framework.scripts is not None
    }
)
"""The kinds of jobs that run scripts. Without a kind, and without an import that tells it, it is the first one."""
PLAIN_IMAGE = "python:3.13"
"""Runs scripts that need nothing but Python."""
MAX_CONFIG_MAP = 900 * 2**10
"""Bytes of code in a ConfigMap, which Kubernetes limits to 1 MiB."""
_MAX_NAME = 40
"""Characters of a job's name, to which a number and the names of replicas are appended."""
_MAX_KEY = 253
"""Characters of a key in a ConfigMap."""
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_DISTRIBUTED_TORCH = frozenset({"torch", "pytorch_lightning", "lightning", "accelerate", "deepspeed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """What the command line says about the job of a script. Empty values are chosen from the script."""

    args: Sequence[str] = ()
    name: str = ""
    number: int = 1
    """Appended to a name that is chosen, if the name without it is taken."""
    kind: str = ""
    image: str = ""
    workers: int = 1
    parameter_servers: int = 0
    has_chief: bool = False
    cpu: str = ""
    memory: str = ""
    gpus: str = ""


NO_OPTIONS = ScriptOptions()


class UnusableScript(UnreadableFile):
    """A script that can't become this job. Exit code 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptManifest:
    """The objects of a script's job, the ConfigMap with its code first, and notes for stderr."""

    documents: Sequence[JsonObject]
    framework: Framework
    support: ScriptSupport
    notes: Sequence[str]
    problems: Sequence[Problem] = ()
    """Of the script's files, because of which they can't travel to a cluster."""


def is_script(name: str) -> bool:
    """Whether FILE is a script by its name, not a manifest."""
    return Path(name).suffix in INTERPRETERS and "://" not in name


def script_manifest(name: str, options: ScriptOptions, *, is_shipped: bool) -> ScriptManifest:
    """Returns the manifest of a script's job. Raises UnusableScript or UnreadableFile.

    With `is_shipped` the script and the modules that it imports from its folder are in a ConfigMap, because pods on
    other machines don't see that folder.
    """
    _require_text(name, options)
    script = _existing(name)
    code = code_of_script(script)
    framework, support = KINDS[options.kind or _kind_for(code.modules)]
    _require_options(framework, support, options)
    image = options.image or _image_for(code, support, options)
    if not image and is_shipped:
        raise UnusableScript(f"there is no public image for a {framework.kind}", remedy="name yours: --image IMAGE")
    chosen = f"{name_for(script)}-{options.number}" if options.number > 1 else name_for(script)
    job_name = options.name or chosen
    config_map, problems = _config_map(name_for(script), script.parent, code) if is_shipped else (None, ())
    path = f"{SCRIPT_FOLDER}/{script.name}" if is_shipped else name
    job = ScriptJob(
        name=job_name,
        image=image or "registry.example.com/my-image:1",
        command=[*INTERPRETERS[script.suffix], path],
        args=options.args,
        workers=options.workers,
        parameter_servers=options.parameter_servers,
        has_chief=options.has_chief,
        cpu=options.cpu,
        memory=options.memory,
        gpus=options.gpus,
        config_map=config_map["metadata"]["name"] if config_map is not None else "",
        packaged_files=_packaged_files(script.parent, code) if is_shipped else {},
    )
    return ScriptManifest(
        documents=[*([config_map] if config_map is not None else []), support.manifest(job)],
        framework=framework,
        support=support,
        notes=list(_notes(script, framework, code)),
        problems=problems,
    )


def name_for(script: Path) -> str:
    """Returns a job's name from a script's: `Train_MNIST.py` gives `train-mnist`."""
    name = re.sub(r"[^a-z0-9]+", "-", script.stem.lower())[:_MAX_NAME].strip("-")
    return name if name[:1].isalpha() else f"job-{name}".rstrip("-")


def _require_text(name: str, options: ScriptOptions) -> None:
    """Raises UnusableScript for what no manifest can contain."""
    for what, text in (("its name", name), *((f"its argument {text!a}", text) for text in options.args)):
        for fault in value_faults(text):
            raise UnusableScript(f"{name!a} can't be run: {what} {fault}")


def _existing(name: str) -> Path:
    script = Path(name)
    if script.is_file():
        return script
    if script.is_dir():
        raise UnusableScript(f"{name} is a folder", remedy="use one of the files in it")
    similar = similar_file(script)
    remedy = f"did you mean {similar}?" if similar else ""
    raise UnusableScript(f"file {name} not found", why=f"the current folder is {Path.cwd()}", remedy=remedy)


def _kind_for(modules: frozenset[str]) -> str:
    return next((kind for kind, (_, support) in KINDS.items() if modules & support.modules), next(iter(KINDS)))


def _image_for(code: ScriptCode, support: ScriptSupport, options: ScriptOptions) -> str:
    """Returns a public image, that of the kind unless the script imports only what every Python has."""
    if options.gpus not in {"", "0"}:
        return support.gpu_image
    is_plain = not options.kind and code.modules <= sys.stdlib_module_names
    return PLAIN_IMAGE if is_plain else support.image


def _require_options(framework: Framework, support: ScriptSupport, options: ScriptOptions) -> None:
    given = {PARAMETER_SERVERS: options.parameter_servers > 0, CHIEF: options.has_chief}
    foreign = [flag for flag, is_given in given.items() if is_given and flag not in support.options]
    if foreign:
        able = " or ".join(kind for kind, (_, each) in KINDS.items() if each.options.issuperset(foreign))
        raise UnusableScript(
            f"{joined(foreign)} can't be used: {framework.kind}s have workers only",
            why="" if options.kind else f"the script's imports suggest a {framework.kind}",
            remedy=f"leave it out, or use --kind {able}",
        )


def _config_map(name: str, folder: Path, code: ScriptCode) -> tuple[JsonObject, Sequence[Problem]]:
    """Returns a ConfigMap whose name follows from its content, so that no other job's code is ever changed.

    A file in a folder has a key without slashes, as `packaged_files` says. Files with problems are left out.
    """
    data: dict[str, str] = {}
    problems: list[Problem] = []
    for file in code.files:
        path = file.relative_to(folder).as_posix()
        text, found = _text_of(file, path)
        problems += found
        if not found:
            data[_key(path)] = text
    size = sum(len(text.encode()) for text in data.values())
    if size > MAX_CONFIG_MAP:
        message = (
            f"the script and its modules are too large: {size >> 10} KiB, "
            f"and a ConfigMap can bring {MAX_CONFIG_MAP >> 10} KiB of code to a cluster"
        )
        remedy = "build an image that has them, and submit a manifest: `tarragon init` writes one"
        problems.append(Problem("", message, remedy))
    digest = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]
    metadata = {"name": f"{name}-script-{digest}"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}
    return body, problems


def _text_of(file: Path, path: str) -> tuple[str, Sequence[Problem]]:
    """Returns the text of a file, and why it can't be in a ConfigMap."""
    problems = [Problem(path, f"can't travel to a cluster: {message}", remedy) for message, remedy in _key_faults(path)]
    try:
        return file.read_text("utf-8"), problems
    except UnicodeDecodeError as error:
        message = f"is not a text file: byte {error.start} is not UTF-8"
        return "", [*problems, Problem(path, message, "save it as UTF-8")]
    except OSError as error:
        return "", [*problems, Problem(path, f"can't be read: {error.strerror or error}")]


def _key_faults(path: str) -> Iterator[tuple[str, str]]:
    """Yields why the path of a file gives no key of a ConfigMap, with a remedy."""
    key = _key(path)
    if _KEY.fullmatch(key) is None:
        yield (
            "the names of files in a ConfigMap have only letters without accents, digits, '-', '_' and '.'",
            "rename it, or build an image that has it",
        )
    if len(key) > _MAX_KEY:
        yield (
            f"its path in a ConfigMap has {len(key)} characters, of at most {_MAX_KEY}, where each '/' counts twice",
            "shorten the names of its folders, or build an image that has it",
        )


def _key(path: str) -> str:
    """Returns the key of a file in a ConfigMap, of its path below the script's folder: `models..net.py`."""
    return path.replace("/", "..")


def _packaged_files(folder: Path, code: ScriptCode) -> Mapping[str, str]:
    """Returns the path of each file by its key; nothing if none is in a folder."""
    paths = [file.relative_to(folder).as_posix() for file in code.files]
    return {_key(path): path for path in paths} if any("/" in path for path in paths) else {}


def _notes(script: Path, framework: Framework, code: ScriptCode) -> Iterator[str]:
    if code.modules & _DISTRIBUTED_TORCH:
        yield (
            f"note: {script.name} runs as a {framework.kind}, without the variables of torch.distributed: "
            "PyTorchJob is not supported yet"
        )
