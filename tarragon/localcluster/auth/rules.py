"""One rule of a role: what it allows, and whether rules together cover another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarragon.localcluster.auth.attributes import Attributes

ALL = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """As written, with empty tuples for what it does not say. No `names` means any."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, wanted: Attributes) -> bool:
        if not _has(self.verbs, wanted.verb):
            return False
        if wanted.path:
            return any(_url_covers(url, wanted.path) for url in self.urls)
        return (
            _has(self.groups, wanted.group)
            and _has_resource(self.resources, wanted.full_resource, wanted.subresource)
            and (not self.names or wanted.name in self.names)
        )

    def covers(self, other: Rule) -> bool:
        """Whether everything that `other` allows is allowed by this one alone."""
        return (
            all(_has(self.verbs, verb) for verb in other.verbs)
            and all(_has(self.groups, group) for group in other.groups)
            and all(_has_resource(self.resources, one, one.partition("/")[2]) for one in other.resources)
            and (not self.names or (bool(other.names) and set(other.names) <= set(self.names)))
            and all(any(_url_covers(own, url) for own in self.urls) for url in other.urls)
        )

    def __str__(self) -> str:
        """As refusals show it."""
        parts = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.urls),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        return "{" + ", ".join(f"{name}:{quoted(words)}" for name, words in parts if words) + "}"

    def written(self) -> dict[str, list[str]]:
        """As a review answers with it."""
        parts = {
            "verbs": self.verbs,
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.urls,
        }
        return {name: list(words) for name, words in parts.items() if words}


EVERYTHING = (
    Rule(verbs=(ALL,), groups=(ALL,), resources=(ALL,)),
    Rule(verbs=(ALL,), urls=(ALL,)),
)


def rule_of(written: Mapping[str, Any]) -> Rule:
    def words(name: str) -> tuple[str, ...]:
        return tuple(written.get(name) or ())

    return Rule(
        verbs=words("verbs"),
        groups=words("apiGroups"),
        resources=words("resources"),
        names=words("resourceNames"),
        urls=words("nonResourceURLs"),
    )


def rules_of(role: Mapping[str, Any]) -> tuple[Rule, ...]:
    return tuple(rule_of(rule) for rule in role.get("rules") or ())


def quoted(words: Iterable[str]) -> str:
    """A list of texts as Go prints it."""
    return "[" + " ".join(json.dumps(word, ensure_ascii=False) for word in words) + "]"


def uncovered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What `held` lacks of `wanted`, in as few rules as one can easily read: one for each resource."""
    missing = [part for rule in wanted for part in _parts(rule) if not any(own.covers(part) for own in held)]
    verbs: dict[Rule, list[str]] = {}
    whole: list[Rule] = []
    for part in missing:
        if part.urls:
            whole.append(part)
            continue
        key = Rule(groups=part.groups, resources=part.resources, names=part.names)
        verbs.setdefault(key, []).extend(verb for verb in part.verbs if verb not in verbs.get(key, ()))
    compact = [
        Rule(verbs=tuple(found), groups=key.groups, resources=key.resources, names=key.names)
        for key, found in verbs.items()
    ]
    return compact + whole


def _parts(rule: Rule) -> Iterator[Rule]:
    """The rule as rules of one group, one resource, one name and one verb each."""
    for group in rule.groups:
        for resource in rule.resources:
            for name in rule.names or (None,):
                names = () if name is None else (name,)
                for verb in rule.verbs:
                    yield Rule(verbs=(verb,), groups=(group,), resources=(resource,), names=names)
    for url in rule.urls:
        for verb in rule.verbs:
            yield Rule(verbs=(verb,), urls=(url,))


def _has(words: Sequence[str], wanted: str) -> bool:
    return ALL in words or wanted in words


def _has_resource(resources: Sequence[str], wanted: str, subresource: str) -> bool:
    """`*/scale` is that subresource of everything; `pods` is not `pods/log`."""
    return _has(resources, wanted) or bool(subresource and f"{ALL}/{subresource}" in resources)


def _url_covers(url: str, wanted: str) -> bool:
    if url in {ALL, wanted}:
        return True
    return url.endswith(ALL) and wanted.startswith(url.rstrip(ALL))
