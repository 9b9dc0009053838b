"""TF_CONFIG, by which the replicas of a TFJob find each other.

By default it lists the whole cluster. With enableDynamicWorker it lists only the replica and the parameter servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.object_names import name
from tarragon.frameworks.plugin import DiscoveryConfig, GangSize
from tarragon.frameworks.tensorflow.replica_types import EVALUATOR, PS
from tarragon.job.annotations import is_elastic_by_restart
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.kube.meta import Json

VARIABLE = "TF_CONFIG"
MAX_LENGTH = 128 * 1024 - len(f"{VARIABLE}=") - 1
"""The maximum length of TF_CONFIG in bytes: Linux limits a variable to 128 KiB, including its name, `=` and NUL."""
MAX_HOST_LENGTH = len('"",:65535.svc.') + 2 * 63
"""The maximum length of a replica's entry in TF_CONFIG, without a cluster domain."""

EVERY_CONTAINER = ""

DiscoveryOf = Callable[[TrainingJob, GangSize, str], Callable[[Replica], DiscoveryConfig | None]]


Host = Callable[[TrainingJob, Replica, str], str]


def qualified_host(job: TrainingJob, replica: Replica, domain: str) -> str:
    """The host of a replica in all generations since v1beta1. It resolves from any namespace."""
    return f"{name(job, replica)}.{job.key.namespace}.svc{'.' + domain if domain else ''}"


def bare_host(job: TrainingJob, replica: Replica, _: str) -> str:
    """The bare name of the service, as in the last releases of v1alpha2. It resolves in the job's namespace."""
    return name(job, replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class TFConfigOptions:
    """The differences of TF_CONFIG between the generations."""

    container: str
    """The container that gets TF_CONFIG, or EVERY_CONTAINER."""
    lists_evaluator: bool
    """Whether the cluster includes evaluators. TensorFlow expects it not to; the training operator includes them."""
    host: Host = qualified_host
    includes_single_replica: bool = False
    """Whether a job of a single replica gets TF_CONFIG. Since tf-operator 0.7 it does not."""


def discovery_config(options: TFConfigOptions) -> DiscoveryOf:
    """The `discovery_config` of a dialect."""

    def of_gang(job: TrainingJob, size: GangSize, domain: str) -> Callable[[Replica], DiscoveryConfig | None]:
        listed = cluster_size(job, size)
        if sum(listed.values()) <= 1 and not options.includes_single_replica:
            return _nothing
        config = _sparse if has_dynamic_workers(job) else _plain
        tf_config = config(job, hosts(job, listed, domain, options), options)
        return lambda replica: DiscoveryConfig(container=options.container, env={VARIABLE: tf_config(replica)})

    return of_gang


def cluster_size(job: TrainingJob, size: GangSize) -> GangSize:
    """The size of the cluster in TF_CONFIG.

    For an elastic job it includes every worker that may ever exist, because a parameter server rejects unlisted
    workers. Synchronous workers would wait for all listed ones; they list the actual size and restart at each resize.
    """
    if job.elastic_policy is None or is_elastic_by_restart(job):
        return size
    return {kind: job.elastic_policy.max_replicas if kind == WORKER else count for kind, count in size.items()}


LONGEST_OPTIONS = TFConfigOptions(container=EVERY_CONTAINER, lists_evaluator=True)
"""The settings with the longest TF_CONFIG of all generations with a map of replicas."""


def tf_config_length(job: TrainingJob, options: TFConfigOptions = LONGEST_OPTIONS) -> int:
    """The length in bytes of the longest TF_CONFIG at the requested size, without a cluster domain."""
    wiring_of = discovery_config(options)(job, job.requested_size(), "")
    last = [Replica(group.type, group.replicas - 1) for group in job.replica_specs if group.replicas]
    wirings = (wiring_of(replica) for replica in last)
    return max(
        (len(wiring.env[VARIABLE].encode(errors="surrogatepass")) for wiring in wirings if wiring is not None),
        default=0,
    )


Hosts = Mapping[ReplicaType, list[str]]
ConfigOf = Callable[[Replica], str]


def _plain(_: TrainingJob, hosts: Hosts, options: TFConfigOptions) -> ConfigOf:
    cluster = _json(
        {
            kind.lower(): found
            for kind, found in sorted(hosts.items(), key=lambda item: item[0].lower())
            if options.lists_evaluator or kind != EVALUATOR
        }
    )
    return lambda replica: f'{{"cluster":{cluster},"task":{_json(_task(replica))},"environment":"cloud"}}'


def _sparse(_: TrainingJob, hosts: Hosts, __: TFConfigOptions) -> ConfigOf:
    servers = hosts.get(PS, [])

    def tf_config(replica: Replica) -> str:
        own = hosts[replica.type][replica.index]
        if replica.type == WORKER:
            cluster: dict[str, Json] = {"worker": {str(replica.index): own}, "ps": servers}
        elif replica.type == PS:
            # A list would have server 1 at index 0, so use a map.
            cluster = {"worker": {}, "ps": [own] if replica.index == 0 else {str(replica.index): own}}
        else:
            cluster = {"worker": {}, "ps": servers, replica.type.lower(): [own]}
        return _json({"cluster": cluster, "task": _task(replica)})

    return tf_config


def has_dynamic_workers(job: TrainingJob) -> bool:
    """Whether enableDynamicWorker is set: each TF_CONFIG then lists only the replica itself and the servers."""
    workers = job.replica_spec(WORKER)
    return workers is not None and workers.may_fail


def hosts(job: TrainingJob, listed: GangSize, domain: str, options: TFConfigOptions) -> Hosts:
    return {
        group.type: [
            f"{options.host(job, Replica(group.type, index), domain)}:{group.port}"
            for index in range(listed.get(group.type, 0))
        ]
        for group in job.replica_specs
        if listed.get(group.type)
    }


def _task(replica: Replica) -> Mapping[str, Json]:
    return {"type": replica.type.lower(), "index": replica.index}


def _nothing(_: Replica) -> None:
    return None


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
