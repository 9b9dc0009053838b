"""Scripts that need Keras 2, because Keras 3 can't train under their tf.distribute strategy.

Tried with TensorFlow 2.21 and Keras 3.15: `fit`, `evaluate`, `train_on_batch` and `test_on_batch` fail under the
strategies of `_UNSUPPORTED`. They work under MirroredStrategy, OneDeviceStrategy and CentralStorageStrategy, and under
those of `_SYNCHRONOUS` in a worker that is alone, with one device or several. Custom training loops work under all of
them. TensorFlow uses Keras 2, of the package tf-keras, if TF_USE_LEGACY_KERAS=1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.frameworks.script_needs import NeededVariable, ScriptMistake

VARIABLE = "TF_USE_LEGACY_KERAS"
IMPORT_REMEDY = "import it with `from tensorflow import keras`"
"""`import keras` is Keras 3, whatever the variable says."""

_SYNCHRONOUS = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")
_UNSUPPORTED = (*_SYNCHRONOUS, "ParameterServerStrategy")
_TRAINING_METHODS = frozenset({"fit", "evaluate", "train_on_batch", "test_on_batch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the modules of a program mention."""

    names: frozenset[str]
    """Of attributes, variables and imports."""
    called_methods: frozenset[str]
    modules: frozenset[str]
    """Imported ones, with dots."""
    has_own_setting: bool


def script_needs(
    programs: Sequence[ast.Module], installed: Mapping[str, str], replicas: int
) -> Iterator[NeededVariable | ScriptMistake]:
    """Yields what a script needs that trains with Keras under a strategy that Keras 3 does not support.

    `programs` are the script and its own modules, `installed` the versions of its environment's packages, `replicas` is
    the most that the job may have.
    """
    facts = _facts(programs)
    unsupported = [name for name in _UNSUPPORTED if replicas > 1 or name not in _SYNCHRONOUS]
    strategy = next((name for name in unsupported if name in facts.names), None)
    if strategy is None or not facts.called_methods & _TRAINING_METHODS or not _is_keras_3(installed):
        return
    if facts.has_own_setting or "tf_keras" in facts.modules:
        return
    reason = f"Keras {installed['keras']} can't train a model under {strategy}"
    if "keras" in facts.modules:
        yield ScriptMistake(
            message=reason,
            remedy=f"{IMPORT_REMEDY}: then Keras 2 (tf-keras) can take its place",
        )
    elif "keras" not in facts.names:
        return
    elif "tf-keras" not in installed:
        yield ScriptMistake(
            message=f"{reason}, but Keras 2 can, which is not installed",
            remedy=f"{{install}} --no-deps {matching_package(installed)}",
        )
    else:
        yield NeededVariable(name=VARIABLE, value="1", reason=f"{reason}, but Keras 2 (tf-keras) can")


def script_needs_of_image(programs: Sequence[ast.Module], replicas: int) -> Iterator[NeededVariable | ScriptMistake]:
    """Yields what such a script needs in an image of TensorFlow 2.16 or later, which has Keras 3.

    None of TensorFlow's own images has tf-keras, but a script can't bring it along.
    """
    for need in script_needs(programs, {"keras": "3", "tf-keras": ""}, replicas):
        match need:
            case NeededVariable():
                page = "`tarragon docs howto/scripts#keras-on-several-workers`"
                yield replace(need, reason=f"{need.reason}. The image must have tf-keras: {page}")
            case ScriptMistake():
                yield need


def _is_keras_3(installed: Mapping[str, str]) -> bool:
    return installed.get("keras", "").partition(".")[0] not in {"", "0", "1", "2"}


def matching_package(installed: Mapping[str, str]) -> str:
    """Returns tf-keras in the version of TensorFlow.

    It is installed without dependencies: it requires the package tensorflow, which would overwrite tensorflow-cpu.
    """
    tensorflow = next((version for name, version in installed.items() if name in _TENSORFLOW), "")
    return f"'tf-keras=={'.'.join(tensorflow.split('.')[:2])}.*'" if tensorflow else "tf-keras"


_TENSORFLOW = frozenset({"tensorflow", "tensorflow-cpu"})


def _facts(programs: Sequence[ast.Module]) -> _Facts:
    names: set[str] = set()
    called_methods: set[str] = set()
    modules: set[str] = set()
    has_own_setting = False
    for node in (node for program in programs for node in ast.walk(program)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)):
                called_methods.add(name)
            case ast.Attribute(attr=name) | ast.Name(id=name):
                names.add(name)
            case ast.Import(names=aliases):
                modules.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), level=0, names=aliases):
                modules.add(module)
                names.update(alias.name for alias in aliases)
            case ast.Constant(value=str(text)) if text == VARIABLE:
                has_own_setting = True
            case _:
                pass
    names.update(part for module in modules if module.startswith("tensorflow.") for part in module.split("."))
    return _Facts(
        names=frozenset(names),
        called_methods=frozenset(called_methods),
        modules=frozenset(module.partition(".")[0] for module in modules),
        has_own_setting=has_own_setting,
    )
