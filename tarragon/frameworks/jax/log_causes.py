"""Errors of JAX programs that users meet, with their remedies."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.frameworks.log_causes import MISSING_MODULE, LogCause

LOG_CAUSES: Sequence[LogCause] = (
    LogCause(
        MISSING_MODULE + r"(?P<name>jax)\b",
        "JAX is not installed in {environment}, which ran this replica",
        "{install} jax; or use an environment that has it: --image-env IMAGE=FOLDER",
    ),
    LogCause(
        r"Multiprocess computations aren't implemented on the CPU backend",
        "this JAX does not connect processes on CPUs by default",
        'before jax.distributed.initialize: jax.config.update("jax_cpu_collectives_implementation", "gloo")',
    ),
    LogCause(
        r"ConfigException: Service token file does not exist",
        "JAX has found the package kubernetes, and asks the cluster for what the operator has told it",
        'turn that off: jax.distributed.initialize(..., cluster_detection_method="deactivate")',
    ),
    LogCause(
        r"JAX distributed service detected fatal errors.*DEADLINE_EXCEEDED",
        "not all workers called jax.distributed.initialize within its timeout",
        "give it COORDINATOR_ADDRESS:COORDINATOR_PORT, NUM_PROCESSES and PROCESS_ID of the environment; see what the "
        "others did meanwhile",
    ),
    LogCause(
        r"JAX distributed service detected fatal errors|Gloo [\w-]+ failed",
        "JAX ended this worker because it had lost another one",
        "check how the others ended: usually one of them failed first",
    ),
)
