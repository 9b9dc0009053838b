"""What an exit code means for a restart: the tables of the generations of the API, as their operators had them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class ExitClass(Enum):
    """CLEAN ended well; RETRYABLE may be tried again under ExitCode; PERMANENT fails the job there."""

    CLEAN = "clean"
    RETRYABLE = "retryable"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class ExitCodeTable:
    """The codes below 128 are always the program's own word, and permanent."""

    retryable: frozenset[int]
    others_from_128: ExitClass
    permanent_reasons: frozenset[str] = frozenset()
    """Words of the kubelet that count more than the code."""
    wished: frozenset[int] = frozenset()
    """Retryable because the job's user says so, which counts more than anything else."""

    def __call__(self, code: int, reason: str = "") -> ExitClass:
        if code == 0:
            return ExitClass.CLEAN
        if code in self.wished:
            return ExitClass.RETRYABLE
        if reason in self.permanent_reasons:
            return ExitClass.PERMANENT
        if code in self.retryable:
            return ExitClass.RETRYABLE
        return self.others_from_128 if code >= 128 else ExitClass.PERMANENT  # noqa: PLR2004 - 128+n: ended by signal n


SINCE_TRAINING_OPERATOR_1_5 = ExitCodeTable(frozenset({130, 137, 138, 143}), ExitClass.RETRYABLE)
"""kubeflow/common from 0.4.3: whatever a signal ended is worth another try."""

UP_TO_TRAINING_OPERATOR_1_4 = ExitCodeTable(frozenset({130, 137, 138, 143}), ExitClass.PERMANENT)
"""v1alpha2 to early v1: undefined codes are permanent, 139 (SIGSEGV) among them."""

OF_V1ALPHA1 = replace(UP_TO_TRAINING_OPERATOR_1_4, permanent_reasons=frozenset({"OOMKilled"}))
"""As its README has it; and a program that needs more memory than it may have will need it again."""

OF_MLKUBE = replace(SINCE_TRAINING_OPERATOR_1_5, permanent_reasons=frozenset({"OOMKilled"}))
