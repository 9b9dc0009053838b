"""The wiring before v1alpha2: TF_CONFIG with bare service names, and the command of the default parameter server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarragon.frameworks.plugin import DiscoveryConfig, GangSize, ObjectNames
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER
from tarragon.frameworks.tensorflow.replica_list import default_server
from tarragon.frameworks.tensorflow.tf_config import DiscoveryOf, TFConfigOptions, hosts
from tarragon.frameworks.tensorflow.tf_config import discovery_config as wire_tf_config
from tarragon.job.model import Replica, TrainingJob


def tf_config_options(names: ObjectNames) -> TFConfigOptions:
    return TFConfigOptions(
        container=MAIN_CONTAINER,
        lists_evaluator=True,
        host=lambda job, replica, _: names.service(job, replica),
        includes_single_replica=True,
    )


def wire(names: ObjectNames) -> DiscoveryOf:
    """The `wire` of a dialect."""
    own = tf_config_options(names)
    with_tf_config = wire_tf_config(own)

    def of_gang(job: TrainingJob, size: GangSize, domain: str) -> Callable[[Replica], DiscoveryConfig | None]:
        tf_config_of = with_tf_config(job, size, domain)
        default_servers = {group.type for group in job.replica_specs if group.runs_provided_program}
        if not default_servers:
            return tf_config_of
        hosts_by_type = {kind.lower(): found for kind, found in hosts(job, size, domain, own).items()}
        cluster = default_server.cluster_spec(hosts_by_type)

        def with_command(replica: Replica) -> DiscoveryConfig | None:
            wiring = tf_config_of(replica)
            if wiring is None or replica.type not in default_servers:
                return wiring
            return replace(wiring, command=default_server.command(replica, cluster))

        return with_command

    return of_gang
