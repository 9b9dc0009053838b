"""Compares a manifest with a live job by meaning, also across generations of the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.base.errors import Problem
from tarragon.frameworks.manifest_metadata import as_manifest, in_order_of
from tarragon.frameworks.plugin import Framework, Manifest
from tarragon.plan.input.decode_and_validate import decode_and_validate


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDiff:
    """The live job and the new manifest, both in the generation of the new one but with their own apiVersion.

    `inexpressible` lists what the live job has and the new generation can't express; `live_only_warnings` the warnings
    that only the live job causes.
    """

    before: Manifest
    after: Manifest
    live_generation: str
    generation: str
    inexpressible: Sequence[Problem] = ()
    live_only_warnings: Sequence[Problem] = ()

    @property
    def is_empty(self) -> bool:
        return self.before == self.after and self.live_generation == self.generation and not self.inexpressible


def diff_manifests(framework: Framework, live: Manifest, new: Manifest) -> ManifestDiff | None:
    """Compare the live job with `new`, which must have no problems. None if the live job can't be decoded."""
    live_decoded, new_decoded = decode_and_validate(framework, live), decode_and_validate(framework, new)
    if live_decoded.dialect is None or new_decoded.dialect is None or live_decoded.problems:
        return None
    inexpressible: Sequence[Problem] = ()
    conversion = framework.conversion
    if conversion is not None and live_decoded.dialect.name != new_decoded.dialect.name:
        converted = conversion.convert(live, live_decoded.dialect.name, new_decoded.dialect.name)
        live = {
            **converted.manifest,
            "metadata": {**converted.manifest["metadata"], "uid": live["metadata"].get("uid", "")},
        }
        inexpressible = [loss.problem for loss in converted.losses]
    if conversion is not None:
        before, after = conversion.normalize_for_diff(live, new, new_decoded.dialect.name)
    else:
        after = as_manifest(new)
        before = in_order_of(as_manifest(live), after)
    return ManifestDiff(
        before={**before, "apiVersion": live_decoded.dialect.api_version},
        after=after,
        live_generation=live_decoded.dialect.name,
        generation=new_decoded.dialect.name,
        inexpressible=inexpressible,
        live_only_warnings=[doubt for doubt in live_decoded.warnings if doubt not in new_decoded.warnings],
    )
