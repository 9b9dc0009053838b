"""The usual causes of a failed training: a table of patterns for the last log lines, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from tarragon.frameworks.log_causes import MISSING_MODULE, LogCause
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.termination_message import boxes
from tarragon.kube.field_reader import nearest_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnvironment:
    """The Python environment that ran a replica, and the command that installs packages there, without the packages."""

    name: str = "its environment"
    install: str = "python -m pip install"
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of what is installed; empty if that is not known, as of an image."""
    more_memory: str = ", or raise resources.limits.memory (of a script: --memory)"
    """What else helps a replica that ran out of memory."""
    relative_paths: str = (
        "a relative path starts at workingDir, or else at the image's own; the file must be in the image, or mounted "
        "from a volume or a ConfigMap"
    )
    """Where paths lead, for a file that is not found."""
    more_disk: str = "use a larger volume, or raise the limit of ephemeral-storage (`kubectl describe pod` shows both)"
    """What helps a replica whose disk is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnd:
    """How a replica ended: where, its last log lines and what its pod says."""

    lines: Sequence[str]
    reason: str = ""
    message: str = ""
    environment: ReplicaEnvironment = ReplicaEnvironment()
    earlier: str = ""
    """How another replica had ended before, if that is known."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A probable cause of the failure, and its remedy."""

    summary: str
    remedy: str


_PACKAGES = MappingProxyType({"sklearn": "scikit-learn", "cv2": "opencv-python", "PIL": "pillow", "yaml": "pyyaml"})
"""Modules whose package has another name."""

_KNOWN_MODULES = (
    *("absl", "accelerate", "datasets", "flax", "horovod", "jax", "joblib", "keras", "keras_tuner", "lightning"),
    *("matplotlib", "mlflow", "mpi4py", "numba", "numpy", "optax", "orbax", "pandas", "polars", "pyarrow", "pydantic"),
    *("requests", "safetensors", "scipy", "seaborn", "sklearn", "tensorboard", "tensorflow", "tensorflow_datasets"),
    *("tensorflow_probability", "tf_keras", "tokenizers", "torch", "torchvision", "tqdm", "transformers", "wandb"),
    *("xgboost", "yaml", "argparse", "collections", "functools", "itertools", "logging", "multiprocessing", "pathlib"),
    *("random", "subprocess", "tempfile", "threading", "time"),
)
"""Modules that trainings import, for names that are misspelled."""

_OWN_MODULES = "utils?|helpers?|common|config|settings|data|dataset|models?|train|lib|src|tools|core"
"""Names that people give to modules of their own. What is on PyPI under such a name is something else."""

_GENERAL: Sequence[LogCause] = (
    LogCause(
        rf"{MISSING_MODULE}(?P<name>{_OWN_MODULES})\b",
        "Python did not find the module {name}, which is usually a file or folder of your own",
        "Python searches the script's folder: put {name} there, or set PYTHONPATH to the folder that contains it "
        "(-e PYTHONPATH=FOLDER)",
    ),
    LogCause(
        MISSING_MODULE + r"(?P<name>\w+)",
        "the module {name} is not installed in {environment}, which ran this replica",
        "{getting}; if {name} is your own file, set workingDir or PYTHONPATH to its folder (-e PYTHONPATH=FOLDER)",
    ),
    LogCause(
        r"EOFError: EOF when reading a line",
        "the program asked for input, as input() does, and a job has none: nobody is at its terminal",
        "read it from arguments (of a script: behind --), variables (-e KEY=VALUE) or a file",
    ),
    LogCause(
        r"(?i)address already in use|No address added|Failed to add port to server",
        "a port is already in use",
        "`ss -ltnp` shows which process uses it; the port that the operator gave the replica is reserved for it",
    ),
    LogCause(
        r"can't open file '(?P<name>[^']+)'",
        "python can't open {name}",
        "correct the path; {relative_paths}",
    ),
    LogCause(
        r"(?:^|: )(?P<name>[\w./+-]+): (?:command )?not found$|\"(?P<other>[^\"]+)\": executable file not found",
        "command {name} not found",
        "correct `command`; on this machine, PATH starts with the environment's programs (--image-env IMAGE=FOLDER)",
    ),
    LogCause(
        r"No space left on device|\[Errno 28\]",
        "a disk is full",
        "{more_disk}",
    ),
    LogCause(
        # Open MPI 5 warns so of a race that does no harm.
        r"^(?!.*Warning: setpgid).*(?i:permission denied)(?:: '(?P<name>[^']+)')?",
        "permission denied {name}",
        "make the file executable (chmod +x) or writable, or use another path in the manifest",
    ),
    LogCause(
        r"Unable to allocate (?P<name>(?:\d{2,}(?:\.\d+)? T|[\d.]+ [PEZY])iB)",
        "the program asked for {name} of memory at once, which no machine has",
        "correct the shape of the array",
    ),
    LogCause(
        r"MemoryError|(?i:out of memory)|OOM when allocating|std::bad_alloc|OOMKilled|^Killed$",
        "the replica ran out of memory",
        "use a smaller batch or fewer replicas{more_memory}",
    ),
    LogCause(
        r"(?i)no CUDA-capable device|CUDA_ERROR_NO_DEVICE|CUDA driver version is insufficient|no GPUs? found",
        "the program needs a GPU, but CUDA found none",
        "request one in resources.limits (nvidia.com/gpu), or run the script without a GPU",
    ),
    LogCause(
        r"UNAVAILABLE|UnavailableError|failed to connect to all addresses|Connection refused|Connection reset by peer",
        "the replica could not reach another replica",
        "{others}; take addresses only from the variables that the operator sets",
        times=3,
    ),
)
_OF_FRAMEWORKS = dict.fromkeys(cause for framework in FRAMEWORKS for cause in framework.log_causes)


@cache
def _compiled() -> Sequence[tuple[re.Pattern[str], LogCause]]:
    """The rows with their patterns, which only failures need."""
    return [(re.compile(row.pattern), row) for row in (*_OF_FRAMEWORKS, *_GENERAL)]


def probable_causes(end: ReplicaEnd) -> Iterator[Cause]:
    """Yields each cause at most once, the most specific one first. A line that has one cause is not searched again."""
    lines = [*end.lines, end.reason, end.message, *boxes(end.lines)]
    for pattern, row in _compiled():
        matches = [match for line in lines if (match := pattern.search(line))]
        if len(matches) >= row.times:
            yield _cause(row, matches[-1], end)
            lines = [line for line in lines if not pattern.search(line)]


def _how_to_get(name: str, environment: ReplicaEnvironment) -> str:
    """Says how to install a module. A misspelled one is not installed: anybody may own that name on PyPI."""
    similar = None if name in _KNOWN_MODULES else nearest_name(name, _KNOWN_MODULES)
    if similar:
        return f"did you mean {similar}? Then correct the import"
    return f"{environment.install} {_PACKAGES.get(name, name)}"


def _cause(row: LogCause, match: re.Match[str], end: ReplicaEnd) -> Cause:
    name = next((found for found in match.groupdict().values() if found), "")
    words = {
        "name": name,
        "getting": _how_to_get(name, end.environment),
        "environment": end.environment.name,
        "install": end.environment.install,
        "more_memory": end.environment.more_memory,
        "relative_paths": end.environment.relative_paths,
        "more_disk": end.environment.more_disk,
        "others": end.earlier or "check how the others ended: usually one of them failed first",
    }
    packages = end.environment.packages
    remedy = row.remedy_with(packages) if row.remedy_with is not None and packages else row.remedy
    return Cause(row.cause.format(**words).strip(), remedy.format(**words))
