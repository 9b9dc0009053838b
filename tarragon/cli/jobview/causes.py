"""The usual causes of a failed training, recognised in its last lines: a table of patterns, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a replica ended, as far as a cause can be read from it.

    `environment` is the folder whose programs it ran; `install` begins a command that installs something there.
    """

    lines: Sequence[str]
    reason: str = ""
    message: str = ""
    environment: str = "its environment"
    install: str = "python -m pip install"


@dataclass(frozen=True, slots=True)
class Cause:
    """What probably happened, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _Row:
    """`what` and `remedy` may use {name}, the pattern's group, {package} that brings it, {environment} and {install}.

    `times`: on how many lines it must stand; one refused connection at the start is nothing.
    """

    pattern: str
    what: str
    remedy: str
    times: int = 1


_GONE_SINCE_TF2 = (
    "placeholder(?:_with_default)?|(?:Interactive|Monitored|MonitoredTraining)?Session|ConfigProto|GPUOptions|app|flags|"
    "gfile|logging|layers|get_variable|variable_scope|(?:global|trainable|local)_variables(?:_initializer)?|"
    "reset_default_graph|get_default_graph|set_random_seed|random_(?:normal|uniform)|truncated_normal|log|assign|"
    "to_(?:float|int32)|Server|Supervisor|Saver|ChiefSessionCreator|SyncReplicasOptimizer|replica_device_setter|"
    "get_or_create_global_step|(?:Adam|GradientDescent|Adagrad|Momentum|RMSProp)Optimizer|StopAtStepHook|"
    "SessionRunHook|softmax_cross_entropy_with_logits_v2"
)

_PACKAGES = MappingProxyType({"sklearn": "scikit-learn", "cv2": "opencv-python", "PIL": "pillow", "yaml": "pyyaml"})
"""Where the package is called otherwise than the module."""

_MISSING_MODULE = r"(?:No module named|module specification for) '?"

_TABLE: Sequence[_Row] = (
    _Row(
        rf"module 'tensorflow[\w.]*' has no attribute '(?P<name>{_GONE_SINCE_TF2})'",
        "a script for TensorFlow 1 runs on TensorFlow 2, where {name} is gone",
        "write `import tensorflow.compat.v1 as tf` and `tf.disable_v2_behavior()` instead of `import tensorflow as tf`",
    ),
    _Row(
        r"module 'tensorflow[\w.]*' has no attribute 'contrib'|No module named '?tensorflow\.contrib",
        "a script for TensorFlow 1 runs on TensorFlow 2, where tf.contrib is gone",
        "nothing took its place: rewrite that part, or name an environment with TensorFlow 1: --env IMAGE=FOLDER",
    ),
    _Row(
        _MISSING_MODULE + r"(?P<name>tensorflow)\b(?!\.)",
        "there is no TensorFlow in {environment}, which ran this replica",
        "{install} 'tarragon[tensorflow]'; or name an environment that has it: --env IMAGE=FOLDER",
    ),
    _Row(
        _MISSING_MODULE + r"(?!tensorflow\b)(?P<name>\w+)",
        "the module {name} is missing in {environment}, which ran this replica",
        "{install} {package}; if {name} is a file of yours, set workingDir or PYTHONPATH to its folder",
    ),
    _Row(
        r"(?i)address already in use|No address added|Failed to add port to server",
        "a port is in use already",
        "`ss -ltnp` shows who holds it; the port that TF_CONFIG names for a replica is free for it",
    ),
    _Row(
        r"can't open file '(?P<name>[^']+)'",
        "python can't open {name}",
        "correct the path; a relative one starts at workingDir, or else at the folder in which tarragon was called",
    ),
    _Row(
        r"(?:^|: )(?P<name>[\w./+-]+): (?:command )?not found$|\"(?P<other>[^\"]+)\": executable file not found",
        "there is no command {name}",
        "correct `command`; on this machine its PATH begins with the environment's (--env IMAGE=FOLDER)",
    ),
    _Row(
        r"No space left on device|\[Errno 28\]",
        "a disk is full",
        "`df -h` shows which; put the volume on another one: --volume NAME=FOLDER",
    ),
    _Row(
        r"(?i:permission denied)(?:: '(?P<name>[^']+)')?",
        "permission denied {name}",
        "make the file executable (chmod +x) or writable for you, or name another path in the manifest",
    ),
    _Row(
        r"MemoryError|(?i:out of memory)|OOM when allocating|std::bad_alloc|OOMKilled|^Killed$",
        "it ran out of memory",
        "take a smaller batch or fewer replicas, or raise resources.limits.memory",
    ),
    _Row(
        r"(?i)no CUDA-capable device|CUDA_ERROR_NO_DEVICE|CUDA driver version is insufficient|no GPUs? found",
        "the program wants a GPU and CUDA finds none",
        "ask for one in resources.limits (nvidia.com/gpu), or let the script do without",
    ),
    _Row(
        r"No worker known as",
        "a parameter server met a worker that was not in its TF_CONFIG",
        "start the job anew with as many workers as it is to have at most",
    ),
    _Row(
        r"UNAVAILABLE|UnavailableError|failed to connect to all addresses|Connection refused|Connection reset by peer",
        "it could not reach another replica",
        "see how the others ended: usually one of them was first; addresses must come from TF_CONFIG",
        times=3,
    ),
)
_COMPILED = tuple((re.compile(row.pattern), row) for row in _TABLE)


def causes(end: End) -> Iterator[Cause]:
    """Each cause at most once, in the order of the table: the most telling one first."""
    lines = [*end.lines, end.reason, end.message]
    for pattern, row in _COMPILED:
        matches = [match for line in lines if (match := pattern.search(line))]
        if len(matches) >= row.times:
            yield _told(row, matches[-1], end)


def _told(row: _Row, match: re.Match[str], end: End) -> Cause:
    name = next((found for found in match.groupdict().values() if found), "")
    package = _PACKAGES.get(name, name)
    words = {"name": name, "package": package, "environment": end.environment, "install": end.install}
    return Cause(row.what.format(**words).strip(), row.remedy.format(**words))
