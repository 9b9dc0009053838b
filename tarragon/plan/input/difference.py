"""Compares a manifest with a live job by meaning, also across generations of the API."""

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
    """The live job and the new manifest, both in the generation of the new one but with their own apiVersion.

    `untold` lists what the live job has and the new generation can't express; `doubts` the warnings that only the live
    job causes.
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
    """Compare the live job with `new`, which must have no problems. None if the live job can't be decoded."""
    live_decoded, new_decoded = intake(framework, live), intake(framework, new)
    if live_decoded.dialect is None or new_decoded.dialect is None or live_decoded.problems:
        return None
    untold: Sequence[Problem] = ()
    if live_decoded.dialect.name != new_decoded.dialect.name:
        conversion = convert(live, live_decoded.dialect.name, new_decoded.dialect.name)
        live = {
            **conversion.manifest,
            "metadata": {**conversion.manifest["metadata"], "uid": live["metadata"].get("uid", "")},
        }
        untold = [loss.problem for loss in conversion.losses]
    before, after = comparable(live, new, new_decoded.dialect.name)
    return Difference(
        before={**before, "apiVersion": live_decoded.dialect.api_version},
        after=after,
        live_generation=live_decoded.dialect.name,
        generation=new_decoded.dialect.name,
        untold=untold,
        doubts=[doubt for doubt in live_decoded.warnings if doubt not in new_decoded.warnings],
    )
