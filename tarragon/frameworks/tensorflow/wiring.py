"""TF_CONFIG, by which the replicas of a TFJob find each other.

By default it lists the whole cluster. With enableDynamicWorker it lists only the replica and the parameter servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tarragon.frameworks.plugin import Size, Wiring
from tarragon.frameworks.tensorflow.naming import name
from tarragon.job.annotations import is_elastic_by_restart
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.kube.meta import Json

VARIABLE = "TF_CONFIG"
LONGEST = 128 * 1024 - len(f"{VARIABLE}=") - 1
"""The maximum length of TF_CONFIG in bytes: Linux limits a variable to 128 KiB, including its name, `=` and NUL."""
LONGEST_HOST = len('"",:65535.svc.') + 2 * 63
"""The maximum length of a replica's entry in TF_CONFIG, without a cluster domain."""

EVERY_CONTAINER = ""

Wire = Callable[[TrainingJob, Size, str], Callable[[Replica], Wiring | None]]


Host = Callable[[TrainingJob, Replica, str], str]


def qualified(job: TrainingJob, replica: Replica, domain: str) -> str:
    """The host of a replica in all generations since v1beta1. It resolves from any namespace."""
    return f"{name(job, replica)}.{job.key.namespace}.svc{'.' + domain if domain else ''}"


def bare(job: TrainingJob, replica: Replica, _: str) -> str:
    """The bare name of the service, as in the last releases of v1alpha2. It resolves in the job's namespace."""
    return name(job, replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The differences of TF_CONFIG between the generations."""

    container: str
    """The container that gets TF_CONFIG, or EVERY_CONTAINER."""
    lists_evaluator: bool
    """Whether the cluster includes evaluators. TensorFlow expects it not to; the training operator includes them."""
    host: Host = qualified
    tells_one: bool = False
    """Whether a job of a single replica gets TF_CONFIG. Since tf-operator 0.7 it does not."""


def wire(habits: Habits) -> Wire:
    """The `wire` of a dialect."""

    def of_gang(job: TrainingJob, size: Size, domain: str) -> Callable[[Replica], Wiring | None]:
        listed = listed_size(job, size)
        if sum(listed.values()) <= 1 and not habits.tells_one:
            return _nothing
        config = _sparse if job.sparse_cluster else _plain
        tf_config = config(job, hosts(job, listed, domain, habits), habits)
        return lambda replica: Wiring(container=habits.container, env={VARIABLE: tf_config(replica)})

    return of_gang


def listed_size(job: TrainingJob, size: Size) -> Size:
    """The size of the cluster in TF_CONFIG.

    For an elastic job it includes every worker that may ever exist, because a parameter server rejects unlisted
    workers. Synchronous workers would wait for all listed ones; they list the actual size and restart at each resize.
    """
    if job.elastic is None or is_elastic_by_restart(job):
        return size
    return {kind: job.elastic.maximum if kind is ReplicaType.WORKER else count for kind, count in size.items()}


WIDEST = Habits(container=EVERY_CONTAINER, lists_evaluator=True)
"""The settings with the longest TF_CONFIG of all generations with a map of replicas."""


def tf_config_length(job: TrainingJob, habits: Habits = WIDEST) -> int:
    """The length in bytes of the longest TF_CONFIG at the requested size, without a cluster domain."""
    wiring_of = wire(habits)(job, job.wished(), "")
    last = [Replica(group.type, group.wish - 1) for group in job.groups if group.wish]
    wirings = (wiring_of(replica) for replica in last)
    return max(
        (len(wiring.env[VARIABLE].encode(errors="surrogatepass")) for wiring in wirings if wiring is not None),
        default=0,
    )


Hosts = Mapping[ReplicaType, list[str]]
Tell = Callable[[Replica], str]


def _plain(_: TrainingJob, hosts: Hosts, habits: Habits) -> Tell:
    cluster = _json(
        {
            kind.word: found
            for kind, found in sorted(hosts.items(), key=lambda item: item[0].word)
            if habits.lists_evaluator or kind is not ReplicaType.EVALUATOR
        }
    )
    return lambda replica: f'{{"cluster":{cluster},"task":{_json(_task(replica))},"environment":"cloud"}}'


def _sparse(_: TrainingJob, hosts: Hosts, __: Habits) -> Tell:
    servers = hosts.get(ReplicaType.PS, [])

    def tf_config(replica: Replica) -> str:
        own = hosts[replica.type][replica.index]
        match replica.type:
            case ReplicaType.WORKER:
                cluster: dict[str, Json] = {"worker": {str(replica.index): own}, "ps": servers}
            case ReplicaType.PS:
                # A list would have server 1 at index 0, so use a map.
                cluster = {"worker": {}, "ps": [own] if replica.index == 0 else {str(replica.index): own}}
            case _:
                cluster = {"worker": {}, "ps": servers, replica.type.word: [own]}
        return _json({"cluster": cluster, "task": _task(replica)})

    return tf_config


def hosts(job: TrainingJob, listed: Size, domain: str, habits: Habits) -> Hosts:
    return {
        group.type: [
            f"{habits.host(job, Replica(group.type, index), domain)}:{group.port}"
            for index in range(listed.get(group.type, 0))
        ]
        for group in job.groups
        if listed.get(group.type)
    }


def _task(replica: Replica) -> Mapping[str, Json]:
    return {"type": replica.type.word, "index": replica.index}


def _nothing(_: Replica) -> None:
    return None


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
