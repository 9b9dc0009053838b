"""Errors of TensorFlow programs that users meet, with their remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarragon.frameworks.log_causes import MISSING_MODULE, LogCause
from tarragon.frameworks.tensorflow.legacy_keras import IMPORT_REMEDY, VARIABLE, matching_package

_REMOVED_IN_TF2 = (
    "placeholder(?:_with_default)?|(?:Interactive|Monitored|MonitoredTraining)?Session|ConfigProto|GPUOptions|app|flags|"
    "gfile|logging|layers|get_variable|variable_scope|(?:global|trainable|local)_variables(?:_initializer)?|"
    "reset_default_graph|get_default_graph|set_random_seed|random_(?:normal|uniform)|truncated_normal|log|assign|"
    "to_(?:float|int32)|Server|Supervisor|Saver|ChiefSessionCreator|SyncReplicasOptimizer|replica_device_setter|"
    "get_or_create_global_step|(?:Adam|GradientDescent|Adagrad|Momentum|RMSProp)Optimizer|StopAtStepHook|"
    "SessionRunHook|softmax_cross_entropy_with_logits_v2"
)

_SET = f"run the job with -e {VARIABLE}=1; a script with `import keras` has to {IMPORT_REMEDY}, or it is Keras 3 still"
_USE_KERAS_2 = f"use Keras 2: {{install}} --no-deps tf-keras, in TensorFlow's version, and {_SET}"
_CUSTOM_LOOP = "; a custom training loop works with Keras 3"


def _use_keras_2(packages: Mapping[str, str]) -> str:
    if "tf-keras" in packages:
        return (
            f"use Keras 2 (tf-keras), which {{environment}} has: if the script has `import keras`, {IMPORT_REMEDY}; "
            f"run the job with -e {VARIABLE}=1"
        )
    return f"use Keras 2: {{install}} --no-deps {matching_package(packages)}, and {_SET}"


def _install_keras_2(packages: Mapping[str, str]) -> str:
    return f"{{install}} --no-deps {matching_package(packages)}"


_BUILD_THE_MODEL = "begin it with an Input layer, keras.Input(shape), or call model.build(input_shape) before fit"

LOG_CAUSES: Sequence[LogCause] = (
    LogCause(
        r"unsupported type \(<class 'tensorflow\.python\.distribute\.values\.PerReplica'>\)",
        "Keras 3 can't train a model under MultiWorkerMirroredStrategy",
        _USE_KERAS_2,
        remedy_with=_use_keras_2,
    ),
    LogCause(
        r"you need to pass this dataset to ClusterCoordinator\.create_per_worker_dataset"
        r"|module 'keras\.utils' has no attribute 'experimental'",
        "Keras 3 can't train a model under ParameterServerStrategy",
        _USE_KERAS_2 + _CUSTOM_LOOP,
        remedy_with=lambda packages: _use_keras_2(packages) + _CUSTOM_LOOP,
    ),
    LogCause(
        # Keras 2 only warns of this, in the same words.
        r"ValueError: To use the BackupAndRestore callback, your? model must be built",
        "the callback BackupAndRestore has a model that is not built: it does not know the shape of its input",
        _BUILD_THE_MODEL,
    ),
    LogCause(
        r"Weights for model '[^']*' have not yet been created",
        "the model is not built: it does not know the shape of its input before its first batch",
        _BUILD_THE_MODEL,
    ),
    LogCause(
        r"Keras cannot be imported\. Check that it is installed|No module named '?tf_keras\b",
        "TF_USE_LEGACY_KERAS or the script asks for Keras 2, which {environment}, which ran this replica, lacks",
        "{install} --no-deps tf-keras, in TensorFlow's version",
        remedy_with=_install_keras_2,
    ),
    LogCause(
        r"module '(?:tensorflow|keras)[\w.]*' has no attribute 'estimator'"
        r"|No module named '?tensorflow[._]estimator|cannot import name 'estimator' from 'tensorflow",
        "the script uses estimators, which TensorFlow 2.16 has removed",
        "rewrite it with Keras, or use an environment with TensorFlow 2.15 or older: --image-env IMAGE=FOLDER",
    ),
    LogCause(
        rf"module 'tensorflow[\w.]*' has no attribute '(?P<name>{_REMOVED_IN_TF2})'",
        "the script is written for TensorFlow 1; TensorFlow 2 has removed {name}",
        "replace `import tensorflow as tf` by `import tensorflow.compat.v1 as tf` and `tf.disable_v2_behavior()`",
    ),
    LogCause(
        r"module 'tensorflow[\w.]*' has no attribute 'contrib'|No module named '?tensorflow\.contrib",
        "the script is written for TensorFlow 1; TensorFlow 2 has removed tf.contrib",
        "it has no replacement: rewrite that part, or use an environment with TensorFlow 1: --image-env IMAGE=FOLDER",
    ),
    LogCause(
        MISSING_MODULE + r"(?P<name>tensorflow)\b",
        "TensorFlow is not installed in {environment}, which ran this replica",
        "{install} tensorflow; or use an environment that has it: --image-env IMAGE=FOLDER",
    ),
    LogCause(
        r"KeyError: '(?P<name>TF_CONFIG)'",
        "the script needs {name}, which a job with a single replica does not have",
        'read it with os.environ.get("TF_CONFIG"), or run several replicas (of a script: --workers 2)',
    ),
    LogCause(
        r"ValueError: There must be at least one (?P<name>ps|worker)\.",
        "ParameterServerStrategy needs a parameter server and a worker, and the job has no {name}",
        "add replicas of the types PS and Worker (of a script: --ps 1 --workers 2 --chief)",
    ),
    LogCause(
        r"No worker known as",
        "a worker that is not in its TF_CONFIG connected to a parameter server",
        "submit the job again with the largest number of workers that it may have",
    ),
)
