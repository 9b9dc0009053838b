"""Controllers of Deployments, ReplicaSets and Jobs, which create, replace and count their pods.

Each separates pure decisions (`rollout`, `job_plan`, `job_count`) from a controller that carries them out. All state is
in API objects: a controller that is killed between two writes reads them at its next start and decides again.
Begin with `controllers`.
"""

from __future__ import annotations
