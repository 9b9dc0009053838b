from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.plan.config.published import (
    RULES_CONFIG_MAP,
    SHARES_CONFIG_MAP,
    PublishedConfig,
    decode_rules,
    decode_shares,
    encode_config_maps,
)
from tarragon.scheduling.api.rules import POLICY_NAMES, QueueRules, SchedulingRules

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 2**60))
QUEUES = st.builds(QueueRules, weight=st.floats(1e-6, 1e6), quota=AMOUNTS)
SECONDS = st.integers(0, 10**9).map(float)
RULES_OF_ALL_KINDS = st.builds(
    SchedulingRules,
    queues=st.dictionaries(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), QUEUES, max_size=3),
    is_fair_share=st.booleans(),
    is_preemption_enabled=st.booleans(),
    starvation_seconds=SECONDS,
    idle_seconds=SECONDS,
    cool_down_seconds=SECONDS,
)


@given(st.builds(PublishedConfig, policy=st.sampled_from(POLICY_NAMES), rules=RULES_OF_ALL_KINDS))
def test_what_is_written_is_what_is_understood(ways: PublishedConfig) -> None:
    data = encode_config_maps(ways)
    known = decode_rules(data[RULES_CONFIG_MAP])

    assert known is not None
    assert known[1] == len(ways.rules.queues)
    assert decode_shares(known[0], data[SHARES_CONFIG_MAP]) == ways


def test_what_everybody_may_read_names_no_namespace() -> None:
    data = encode_config_maps(PublishedConfig(rules=SchedulingRules(queues={"secret-project": QueueRules(weight=2)})))

    assert "secret-project" not in str(data[RULES_CONFIG_MAP])
    assert "secret-project" in str(data[SHARES_CONFIG_MAP])


def test_a_field_of_a_later_version_is_passed_over() -> None:
    ways = PublishedConfig(policy="fifo")
    assert decode_rules({**encode_config_maps(ways)[RULES_CONFIG_MAP], "moonPhase": "full"}) == (ways, 0)


NO_WORDS = [("policy", "lottery"), ("aged", "long"), ("fair", "somewhat"), ("shares", "x")]
NO_TIMES = [("aged", "nan"), ("idle", "-1"), ("coolDown", "inf")]


@pytest.mark.parametrize("change", [{name: said} for name, said in [*NO_WORDS, *NO_TIMES]])
def test_words_of_another_version_are_not_guessed_at(change: dict[str, str]) -> None:
    assert decode_rules({**encode_config_maps(PublishedConfig())[RULES_CONFIG_MAP], **change}) is None
    assert decode_rules({}) is None


@pytest.mark.parametrize("said", ["{", "[]", '{"a": {"colour": "red"}}', '{"a": {"weight": -1}}'])
def test_shares_that_make_no_sense_are_none(said: str) -> None:
    assert decode_shares(PublishedConfig(), {"namespaces": said}) is None
