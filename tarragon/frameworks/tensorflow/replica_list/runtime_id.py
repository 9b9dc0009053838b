"""Names and labels with a runtime id, as before v1alpha2, so that a recreated job does not collide with the old one.

The operators of 2017 and 2018 chose runtime ids and suffixes of pod names at random. Tarragon derives them from the
job's uid, so that names are deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.plugin import ObjectNames
from tarragon.frameworks.tensorflow.replica_types import LIST_TYPES
from tarragon.job.model import Replica, TrainingJob

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 4
TAIL_LENGTH = 5

_TYPE_OF = {kind.lower(): kind for kind in LIST_TYPES}


def runtime_id(uid: str) -> str:
    return digest(ID_LENGTH, uid)


def digest(length: int, *parts: str) -> str:
    """A hash of the texts, as that many lower-case letters and digits."""
    number = int.from_bytes(sha256("\0".join(parts).encode(errors="surrogatepass")).digest())
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters)


def pod_suffix(job: TrainingJob, replica: Replica) -> str:
    return digest(TAIL_LENGTH, job.uid, str(replica))


def object_names(beginning: Callable[[TrainingJob], str]) -> ObjectNames:
    """The names: `{beginning}{type}-{runtime id}-{index}` for services, and the same with a suffix for pods."""

    def service(job: TrainingJob, replica: Replica) -> str:
        return f"{beginning(job)}{replica.type.lower()}-{job.runtime_id}-{replica.index}"

    def pod(job: TrainingJob, replica: Replica) -> str:
        return f"{service(job, replica)}-{pod_suffix(job, replica)}"

    def replica_of(job: TrainingJob, name: str) -> Replica | None:
        """The replica of a name with any suffix, because the original operator chose suffixes at random."""
        start = beginning(job)
        found = _pattern(job.runtime_id).fullmatch(name[len(start) :]) if name.startswith(start) else None
        return Replica(_TYPE_OF[found["word"]], int(found["index"])) if found is not None else None

    return ObjectNames(pod=pod, service=service, replica_of=replica_of)


@lru_cache
def _pattern(runtime_id: str) -> re.Pattern[str]:
    """Matches the rest of a name after its beginning. For a deleted job the runtime id is unknown, and any matches."""
    known = re.escape(runtime_id) if runtime_id else "[a-z0-9-]+?"
    return re.compile(rf"(?P<word>{'|'.join(_TYPE_OF)})-{known}-(?P<index>0|[1-9][0-9]{{0,8}})(-[a-z0-9]{{5}})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLabels:
    owner: str
    """The key of the label, with an empty value, that identifies the operator."""
    job: str = ""
    """The key of the label with the job's name, if there is one."""

    def of_job(self, job: TrainingJob) -> dict[str, str]:
        labels = {self.owner: ""}
        if self.job:
            labels[self.job] = job.key.name
        if job.runtime_id:
            labels["runtime_id"] = job.runtime_id
        return labels

    def of_workers(self, job: TrainingJob) -> dict[str, str]:
        return {**self.of_job(job), "job_type": WORKER.upper()}

    def of_replica(self, job: TrainingJob, replica: Replica) -> dict[str, str]:
        return {**self.of_job(job), "job_type": replica.type.upper(), "task_index": str(replica.index)}
