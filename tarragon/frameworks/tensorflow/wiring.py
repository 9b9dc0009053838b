"""TF_CONFIG: what TensorFlow must be told to find the other replicas.

Plain, every replica is told the whole cluster. Sparse (enableDynamicWorker), only itself and the parameter servers.
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
"""Bytes: Linux starts no program with a longer variable than 128 KiB, its name, `=` and end included."""
LONGEST_HOST = len('"",:65535.svc.') + 2 * 63
"""Of a replica in a namespace, as TF_CONFIG has it."""

EVERY_CONTAINER = ""

Wire = Callable[[TrainingJob, Size, str], Callable[[Replica], Wiring | None]]


Host = Callable[[TrainingJob, Replica, str], str]


def qualified(job: TrainingJob, replica: Replica, domain: str) -> str:
    """The host of a replica as all generations since v1beta1 write it: found from any namespace."""
    return f"{name(job, replica)}.{job.key.namespace}.svc{'.' + domain if domain else ''}"


def bare(job: TrainingJob, replica: Replica, _: str) -> str:
    """The service alone, as v1alpha2 had it in the end: found from the job's own namespace."""
    return name(job, replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Where the generations differ."""

    container: str
    """Which container is told, if not EVERY_CONTAINER."""
    lists_evaluator: bool
    """TensorFlow itself wants the evaluator outside of the cluster; the training operator lists it."""
    host: Host = qualified
    tells_one: bool = False
    """Whether a job of a single replica is told about itself; since tf-operator 0.7 it is not."""


def wire(habits: Habits) -> Wire:
    """The `wire` of a dialect."""

    def of_gang(job: TrainingJob, size: Size, domain: str) -> Callable[[Replica], Wiring | None]:
        listed = listed_size(job, size)
        if sum(listed.values()) <= 1 and not habits.tells_one:
            return _nothing
        config = _sparse if job.sparse_cluster else _plain
        tell = config(job, hosts(job, listed, domain, habits), habits)
        return lambda replica: Wiring(container=habits.container, env={VARIABLE: tell(replica)})

    return of_gang


def listed_size(job: TrainingJob, size: Size) -> Size:
    """An elastic job lists every worker that may ever come: a parameter server turns away those it was not told of.

    Workers that march in step would wait for all that are listed: they are started again at each new size.
    """
    if job.elastic is None or is_elastic_by_restart(job):
        return size
    return {kind: job.elastic.maximum if kind is ReplicaType.WORKER else count for kind, count in size.items()}


WIDEST = Habits(container=EVERY_CONTAINER, lists_evaluator=True)
"""What gives the longest TF_CONFIG of all generations with a map of replicas."""


def tf_config_length(job: TrainingJob, habits: Habits = WIDEST) -> int:
    """Bytes of the longest TF_CONFIG at the wished size, without a cluster domain."""
    tell = wire(habits)(job, job.wished(), "")
    last = [Replica(group.type, group.wish - 1) for group in job.groups if group.wish]
    told = (tell(replica) for replica in last)
    return max(
        (len(wiring.env[VARIABLE].encode(errors="surrogatepass")) for wiring in told if wiring is not None), default=0
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

    def told(replica: Replica) -> str:
        own = hosts[replica.type][replica.index]
        match replica.type:
            case ReplicaType.WORKER:
                cluster: dict[str, Json] = {"worker": {str(replica.index): own}, "ps": servers}
            case ReplicaType.PS:
                # In a list, server 1 would stand where TensorFlow looks for server 0.
                cluster = {"worker": {}, "ps": [own] if replica.index == 0 else {str(replica.index): own}}
            case _:
                cluster = {"worker": {}, "ps": servers, replica.type.word: [own]}
        return _json({"cluster": cluster, "task": _task(replica)})

    return told


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
