"""The usual causes of a failed training: a table of patterns for the last log lines, each with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnd:
    """How a replica ended: its last log lines and what its pod says.

    `environment` is the Python environment that ran the replica; `install` is the command that installs packages there,
    without the packages.
    """

    lines: Sequence[str]
    reason: str = ""
    message: str = ""
    environment: str = "its environment"
    install: str = "python -m pip install"


@dataclass(frozen=True, slots=True)
class Cause:
    """A probable cause of the failure, and its remedy."""

    summary: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _Row:
    """`what` and `remedy` may use {name} (the pattern's group), {package} (which has it), {environment} and {install}.

    `times` is the number of lines that must match: a single refused connection at the start is normal.
    """

    pattern: str
    what: str
    remedy: str
    times: int = 1


_REMOVED_IN_TF2 = (
    "placeholder(?:_with_default)?|(?:Interactive|Monitored|MonitoredTraining)?Session|ConfigProto|GPUOptions|app|flags|"
    "gfile|logging|layers|get_variable|variable_scope|(?:global|trainable|local)_variables(?:_initializer)?|"
    "reset_default_graph|get_default_graph|set_random_seed|random_(?:normal|uniform)|truncated_normal|log|assign|"
    "to_(?:float|int32)|Server|Supervisor|Saver|ChiefSessionCreator|SyncReplicasOptimizer|replica_device_setter|"
    "get_or_create_global_step|(?:Adam|GradientDescent|Adagrad|Momentum|RMSProp)Optimizer|StopAtStepHook|"
    "SessionRunHook|softmax_cross_entropy_with_logits_v2"
)

_PACKAGES = MappingProxyType({"sklearn": "scikit-learn", "cv2": "opencv-python", "PIL": "pillow", "yaml": "pyyaml"})
"""Modules whose package has another name."""

_MISSING_MODULE = r"(?:No module named|module specification for) '?"

_TABLE: Sequence[_Row] = (
    _Row(
        rf"module 'tensorflow[\w.]*' has no attribute '(?P<name>{_REMOVED_IN_TF2})'",
        "the script is written for TensorFlow 1; TensorFlow 2 has removed {name}",
        "replace `import tensorflow as tf` by `import tensorflow.compat.v1 as tf` and `tf.disable_v2_behavior()`",
    ),
    _Row(
        r"module 'tensorflow[\w.]*' has no attribute 'contrib'|No module named '?tensorflow\.contrib",
        "the script is written for TensorFlow 1; TensorFlow 2 has removed tf.contrib",
        "it has no replacement: rewrite that part, or use an environment with TensorFlow 1: --env IMAGE=FOLDER",
    ),
    _Row(
        _MISSING_MODULE + r"(?P<name>tensorflow)\b(?!\.)",
        "TensorFlow is not installed in {environment}, which ran this replica",
        "{install} 'tarragon[tensorflow]'; or use an environment that has it: --env IMAGE=FOLDER",
    ),
    _Row(
        _MISSING_MODULE + r"(?!tensorflow\b)(?P<name>\w+)",
        "the module {name} is not installed in {environment}, which ran this replica",
        "{install} {package}; if {name} is your own file, set workingDir or PYTHONPATH to its folder",
    ),
    _Row(
        r"(?i)address already in use|No address added|Failed to add port to server",
        "a port is already in use",
        "`ss -ltnp` shows which process uses it; the replica's own port in TF_CONFIG is reserved for it",
    ),
    _Row(
        r"can't open file '(?P<name>[^']+)'",
        "python can't open {name}",
        "correct the path; a relative path starts at workingDir, or else at the folder from which tarragon was run",
    ),
    _Row(
        r"(?:^|: )(?P<name>[\w./+-]+): (?:command )?not found$|\"(?P<other>[^\"]+)\": executable file not found",
        "command {name} not found",
        "correct `command`; on this machine, PATH starts with the environment's programs (--env IMAGE=FOLDER)",
    ),
    _Row(
        r"No space left on device|\[Errno 28\]",
        "a disk is full",
        "`df -h` shows which one; put the volume on another disk: --volume NAME=FOLDER",
    ),
    _Row(
        r"(?i:permission denied)(?:: '(?P<name>[^']+)')?",
        "permission denied {name}",
        "make the file executable (chmod +x) or writable, or use another path in the manifest",
    ),
    _Row(
        r"MemoryError|(?i:out of memory)|OOM when allocating|std::bad_alloc|OOMKilled|^Killed$",
        "the replica ran out of memory",
        "use a smaller batch or fewer replicas, or raise resources.limits.memory",
    ),
    _Row(
        r"(?i)no CUDA-capable device|CUDA_ERROR_NO_DEVICE|CUDA driver version is insufficient|no GPUs? found",
        "the program needs a GPU, but CUDA found none",
        "request one in resources.limits (nvidia.com/gpu), or run the script without a GPU",
    ),
    _Row(
        r"No worker known as",
        "a worker that is not in its TF_CONFIG connected to a parameter server",
        "submit the job again with the largest number of workers that it may have",
    ),
    _Row(
        r"UNAVAILABLE|UnavailableError|failed to connect to all addresses|Connection refused|Connection reset by peer",
        "the replica could not reach another replica",
        "check how the others ended: usually one of them failed first; take addresses only from TF_CONFIG",
        times=3,
    ),
)
_COMPILED = tuple((re.compile(row.pattern), row) for row in _TABLE)


def probable_causes(end: ReplicaEnd) -> Iterator[Cause]:
    """Yields each cause at most once, in the order of the table: the most specific cause first."""
    lines = [*end.lines, end.reason, end.message]
    for pattern, row in _COMPILED:
        matches = [match for line in lines if (match := pattern.search(line))]
        if len(matches) >= row.times:
            yield _cause(row, matches[-1], end)


def _cause(row: _Row, match: re.Match[str], end: ReplicaEnd) -> Cause:
    name = next((found for found in match.groupdict().values() if found), "")
    package = _PACKAGES.get(name, name)
    words = {"name": name, "package": package, "environment": end.environment, "install": end.install}
    return Cause(row.what.format(**words).strip(), row.remedy.format(**words))
