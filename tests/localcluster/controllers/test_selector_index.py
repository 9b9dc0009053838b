from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarragon.kube.meta import Key
from tarragon.localcluster.services.selector_index import SelectorIndex

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"))
NAMESPACES = st.sampled_from(["one", "two"])
KEYS = st.builds(Key, NAMESPACES, st.sampled_from("pqr"))


@given(steps=st.lists(st.tuples(KEYS, st.none() | LABELS)), namespace=NAMESPACES, labels=LABELS)
def test_a_pod_finds_the_services_that_select_it_and_no_others(
    steps: list[tuple[Key, dict[str, str] | None]], namespace: str, labels: dict[str, str]
) -> None:
    selectors, plain = SelectorIndex(), dict[Key, dict[str, str]]()
    for key, selector in steps:
        if selector is None:
            selectors.remove(key)
            plain.pop(key, None)
        else:
            selectors.set(key, selector)
            plain[key] = selector

    expected = {
        key
        for key, selector in plain.items()
        if selector and key.namespace == namespace and selector.items() <= labels.items()
    }
    found = selectors.services_selecting(namespace, labels)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_few_services_are_compared_for_a_replica_of_a_large_job() -> None:
    class Counted(SelectorIndex):
        def compared_with(self, labels: dict[str, str]) -> int:
            return sum(len(self._keys_by_term.get(("default", name, value), ())) for name, value in labels.items())

    selectors = Counted()

    def labels(job: str, index: int) -> dict[str, str]:
        return {"group": "kubeflow.org", "job": job, "index": str(index)}

    for index in range(1000):
        selectors.set(Key("default", f"large-{index}"), labels("large", index))
        selectors.set(Key("default", f"small-{index}"), labels(f"small-{index}", 0))

    assert selectors.compared_with(labels("large", 500)) < 10
    assert selectors.compared_with(labels("small-500", 0)) < 10
