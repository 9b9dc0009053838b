"""The file of queues: what it says, and all that is wrong with it at once."""

from __future__ import annotations

import yaml

from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU
from tarragon.plan.config.queues import decode_queue_file
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules

FILE = """
fair: true
preempt: false
namespaces:
  team-a: {weight: 2, quota: {nvidia.com/gpu: 8, cpu: "1500m", memory: 64Gi}}
  team-b:
"""


def test_what_it_says_becomes_rules_and_what_it_does_not_say_stays() -> None:
    found = decode_queue_file(yaml.safe_load(FILE))

    assert not found.problems
    quota = {NVIDIA_GPU: 8000, CPU: 1500, MEMORY: 64 * 2**30 * 1000}
    queues = {"team-a": QueueRules(weight=2.0, quota=quota), "team-b": QueueRules()}
    assert found.rules == SchedulingRules(is_fair_share=True, is_preemption_enabled=False, queues=queues)
    assert decode_queue_file(None).rules == decode_queue_file({}).rules == SchedulingRules()


def test_everything_that_is_wrong_is_told_at_once_with_its_place() -> None:
    found = decode_queue_file(
        {
            "fair": "yes",
            "preemption": True,
            "namespaces": {
                "Team_A": {"weight": 0},
                "b": {"weigth": 1, "quota": {"cpu": "many", "memory": -1, "pods": True}},
                "c": [1],
            },
        }
    )

    assert [str(problem) for problem in found.problems] == [
        "preemption: is not a known field; did you mean preempt?",
        "fair: must be true or false, not 'yes'",
        "namespaces.Team_A: 'Team_A' is not a valid namespace name; use lower-case letters, digits and -",
        "namespaces.Team_A.weight: must be a number greater than 0, not 0",
        "namespaces.b.weigth: is not a known field; did you mean weight?",
        "namespaces.b.quota.cpu: must be a quantity of 0 or more, not 'many'; such as 8, 500m or 64Gi",
        "namespaces.b.quota.memory: must be a quantity of 0 or more, not -1; such as 8, 500m or 64Gi",
        "namespaces.b.quota.pods: must be a quantity of 0 or more, not True; such as 8, 500m or 64Gi",
        "namespaces.c: must be an object with the fields weight, quota, not [1]",
    ]


def test_a_list_is_no_file_of_queues() -> None:
    assert [str(problem) for problem in decode_queue_file([1]).problems] == [
        "must be an object with the fields fair, preempt, namespaces, not [1]"
    ]
    assert [str(problem) for problem in decode_queue_file({"namespaces": 3}).problems] == [
        "namespaces: must map namespaces to their weight and quota, not 3"
    ]
