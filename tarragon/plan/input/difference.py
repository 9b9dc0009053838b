"""What a manifest would change about a job that is there: by meaning, also across generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Framework, Manifest
from tarragon.frameworks.tensorflow.conversion.comparing import comparable
from tarragon.frameworks.tensorflow.conversion.converting import convert
from tarragon.plan.input.decode_and_validate import intake


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Both sides as manifests of the new one's generation, but for the version that each says it is of.

    `untold` is what the live job has and the new one's generation can't say; `doubts` what it is warned of there alone.
    """

    before: Manifest
    after: Manifest
    live_generation: str
    generation: str
    untold: Sequence[Problem] = ()
    doubts: Sequence[Problem] = ()

    @property
    def is_none(self) -> bool:
        return self.before == self.after and self.live_generation == self.generation and not self.untold


def difference(framework: Framework, live: Manifest, new: Manifest) -> Difference | None:
    """`new` is without problems. None where the live job can't be read, or not compared: it is another thing."""
    there, wanted = intake(framework, live), intake(framework, new)
    if there.dialect is None or wanted.dialect is None or there.problems:
        return None
    untold: Sequence[Problem] = ()
    if there.dialect.name != wanted.dialect.name:
        made = convert(live, there.dialect.name, wanted.dialect.name)
        live = {**made.manifest, "metadata": {**made.manifest["metadata"], "uid": live["metadata"].get("uid", "")}}
        untold = [loss.problem for loss in made.losses]
    before, after = comparable(live, new, wanted.dialect.name)
    return Difference(
        before={**before, "apiVersion": there.dialect.api_version},
        after=after,
        live_generation=there.dialect.name,
        generation=wanted.dialect.name,
        untold=untold,
        doubts=[doubt for doubt in there.warnings if doubt not in wanted.warnings],
    )
