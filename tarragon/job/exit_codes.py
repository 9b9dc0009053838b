"""Which exit codes are retryable: one table per API generation, as the operator of that generation had it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType


class ExitClass(Enum):
    """CLEAN is success. Under restartPolicy ExitCode, RETRYABLE restarts the replica and PERMANENT fails the job."""

    CLEAN = "clean"
    RETRYABLE = "retryable"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class ExitCodeTable:
    """Classifies exit codes. Codes from 1 to 127 come from the program and are permanent unless listed."""

    retryable: frozenset[int]
    default_for_signals: ExitClass
    permanent_reasons: frozenset[str] = frozenset()
    """Reasons of the kubelet that make an end permanent, whatever its code."""
    user_retryable: frozenset[int] = frozenset()
    """Codes that the job's annotation declares retryable. This overrides everything else."""

    def __call__(self, code: int, reason: str = "") -> ExitClass:
        if code == 0:
            return ExitClass.CLEAN
        if code in self.user_retryable:
            return ExitClass.RETRYABLE
        if reason in self.permanent_reasons:
            return ExitClass.PERMANENT
        if code in self.retryable:
            return ExitClass.RETRYABLE
        return self.default_for_signals if code >= 128 else ExitClass.PERMANENT  # noqa: PLR2004 - 128+n: ended by signal n


CRASH_SIGNALS: Mapping[int, str] = MappingProxyType({132: "SIGILL", 135: "SIGBUS", 136: "SIGFPE", 139: "SIGSEGV"})
"""Exit codes of programs that a signal ended for a fault of their own. They had no time to say anything about it,
unlike those that abort (SIGABRT)."""

SINCE_TRAINING_OPERATOR_1_5 = ExitCodeTable(frozenset({130, 137, 138, 143}), ExitClass.RETRYABLE)
"""kubeflow/common since 0.4.3: every end by a signal is retryable."""

UP_TO_TRAINING_OPERATOR_1_4 = ExitCodeTable(frozenset({130, 137, 138, 143}), ExitClass.PERMANENT)
"""v1alpha2 to early v1: unlisted codes are permanent, including 139 (SIGSEGV)."""

V1ALPHA1 = replace(UP_TO_TRAINING_OPERATOR_1_4, permanent_reasons=frozenset({"OOMKilled"}))
"""v1alpha1, as its README says. OOMKilled is permanent: a program that exceeds its memory limit will do so again."""

MLKUBE = replace(SINCE_TRAINING_OPERATOR_1_5, permanent_reasons=frozenset({"OOMKilled"}))
