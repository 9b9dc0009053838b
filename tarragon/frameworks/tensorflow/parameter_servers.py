"""Scripts under ParameterServerStrategy in jobs without the replicas that it needs.

Without a chief, every replica of such a script is a server that waits for ever: nobody tells it what to compute.
Without a parameter server, the chief ends with a ValueError.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tarragon.frameworks.script_needs import ScriptMistake
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import TrainingJob

_STRATEGY = "ParameterServerStrategy"
_OTHER_USES = frozenset({"MultiWorkerMirroredStrategy", "MirroredStrategy", "SimpleClusterResolver"})
"""Names of scripts that choose among strategies, or that start their whole cluster themselves."""


def missing_replicas(programs: Sequence[ast.Module], job: TrainingJob) -> Iterator[ScriptMistake]:
    """Yields what a script's job lacks for ParameterServerStrategy: parameter servers, a chief, or both."""
    names = _names(programs)
    if _STRATEGY not in names or names & _OTHER_USES:
        return
    servers = sum(group.replicas for group in job.replica_specs if group.type == PS)
    wanted = [
        *([("--ps 1", "a parameter server")] if not servers else []),
        *([("--chief", "a chief, which coordinates the others")] if not job.has_chief else []),
    ]
    if wanted:
        needs = " and ".join(what for _, what in wanted)
        end = "the chief will fail" if job.has_chief else "nobody starts the training"
        yield ScriptMistake(
            message=f"the script uses {_STRATEGY}, which needs {needs}; without, {end}",
            remedy=f"add {' '.join(flag for flag, _ in wanted)}",
        )


def _names(programs: Sequence[ast.Module]) -> frozenset[str]:
    """Returns the attributes, variables and imports that the modules mention."""
    names: set[str] = set()
    for node in (node for program in programs for node in ast.walk(program)):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                names.add(name)
            case ast.ImportFrom(names=aliases):
                names.update(alias.name for alias in aliases)
            case _:
                pass
    return frozenset(names)
