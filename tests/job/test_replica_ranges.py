from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS, ROLES
from tarragon.job.model import Replica
from tarragon.job.replica_ranges import describe_replicas, format_replicas, parse_replicas


@given(st.frozensets(st.builds(Replica, st.sampled_from(list(ROLES)), st.integers(0, 50))))
def test_replicas_of_all_types_are_read_again(found: frozenset[Replica]) -> None:
    assert parse_replicas(format_replicas(found)) == found


def test_people_read_types_with_their_indexes() -> None:
    members = [Replica(WORKER, 0), Replica(WORKER, 1), Replica(PS, 0)]

    assert describe_replicas(members) == "ps 0, worker 0-1"
