"""What replicas are told before v1alpha2: TF_CONFIG with bare service names, and how a default server is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tarragon.frameworks.plugin import Names, Size, Wiring
from tarragon.frameworks.tensorflow import default_server
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER
from tarragon.frameworks.tensorflow.wiring import Habits, Wire, hosts
from tarragon.frameworks.tensorflow.wiring import wire as wire_tf_config
from tarragon.job.model import Replica, TrainingJob


def habits(names: Names) -> Habits:
    return Habits(
        container=MAIN_CONTAINER,
        lists_evaluator=True,
        host=lambda job, replica, _: names.service(job, replica),
        tells_one=True,
    )


def wire(names: Names) -> Wire:
    """The `wire` of a dialect."""
    own = habits(names)
    told_by_tf_config = wire_tf_config(own)

    def of_gang(job: TrainingJob, size: Size, domain: str) -> Callable[[Replica], Wiring | None]:
        tell = told_by_tf_config(job, size, domain)
        served = {group.type for group in job.groups if group.is_default_server}
        if not served:
            return tell
        there = {kind.word: found for kind, found in hosts(job, size, domain, own).items()}
        cluster = default_server.cluster_spec(there)

        def told(replica: Replica) -> Wiring | None:
            wiring = tell(replica)
            if wiring is None or replica.type not in served:
                return wiring
            return replace(wiring, command=default_server.command(replica, cluster))

        return told

    return of_gang
