from __future__ import annotations

import random
from typing import Any

from tarragon.base.clock import FakeClock
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.snapshot.eligibility import MAX_CACHED, EligibilityCache
from tarragon.plan.objects.settings import OperatorSettings
from tests.localcluster.controllers.world import EmbeddedCluster as Embedded
from tests.operator.stage import Stage

Json = dict[str, Any]


def template(**spec: Json) -> Json:
    return {"spec": {"containers": [{"name": "tensorflow", "image": "i"}], **spec}}


def apart_from(job: str) -> Json:
    """What keeps the replicas of a job from each other's nodes, as operators' examples have it."""
    term = {"labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": job}}, "topologyKey": "a/zone"}
    return template(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def eligibility(world: Embedded) -> EligibilityCache:
    seen = Informers(world.client, FRAMEWORKS, FakeClock(), OperatorSettings(), random.Random(1))
    return EligibilityCache(seen)


async def test_jobs_that_differ_in_whom_they_keep_away_from_share_one_answer(stage: Stage) -> None:
    """Else each job that ever was would leave as much behind as there are nodes."""
    asked = eligibility(stage.world)
    asked.eligible_nodes(apart_from("a"), "default")
    asked.eligible_nodes(apart_from("b"), "default")
    assert asked.cached_count == 1


async def test_no_more_than_so_many_answers_are_kept_in_mind(stage: Stage) -> None:
    asked = eligibility(stage.world)
    for number in range(MAX_CACHED):
        asked.eligible_nodes(template(nodeSelector={"a": str(number)}), "default")
    assert asked.cached_count == MAX_CACHED

    asked.eligible_nodes(template(nodeSelector={"a": "one more"}), "default")
    assert asked.cached_count == 1
