"""Which scripts need Keras 2, by what Keras 3 was seen to do under each strategy of tf.distribute."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest

from tarragon.frameworks.script_needs import NeededVariable, ScriptMistake
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW

INSTALLED = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1", "tf-keras": "2.21.0", "numpy": "2.4.6"}
TEXTBOOK = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=3)
"""


def needs(
    *texts: str, installed: Mapping[str, str] = INSTALLED, replicas: int = 2
) -> list[NeededVariable | ScriptMistake]:
    return list(TENSORFLOW.script_needs([ast.parse(text) for text in texts], installed, replicas))


def needs_keras_2(*texts: str) -> bool:
    return any(isinstance(need, NeededVariable) for need in needs(*texts))


def test_the_textbook_script_needs_keras_2() -> None:
    (need,) = needs(TEXTBOOK)

    assert need == NeededVariable(
        name="TF_USE_LEGACY_KERAS",
        value="1",
        reason="Keras 3.15.1 can't train a model under MultiWorkerMirroredStrategy, but Keras 2 (tf-keras) can",
    )
    assert list(MLKUBE.script_needs([ast.parse(TEXTBOOK)], INSTALLED, 2)) == [need]


def test_a_worker_that_is_alone_needs_no_keras_2_for_workers_that_wait_for_each_other() -> None:
    assert needs(TEXTBOOK, replicas=1) == []
    assert needs(TEXTBOOK.replace("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"), replicas=1) == []
    assert needs(TEXTBOOK.replace("MultiWorkerMirroredStrategy", "ParameterServerStrategy"), replicas=1) != []


@pytest.mark.parametrize(
    ("old", "new", "is_needed"),
    [
        ("distribute.Multi", "distribute.experimental.Multi", True),
        ("MultiWorkerMirroredStrategy()", "ParameterServerStrategy(resolver)", True),
        ("MultiWorkerMirroredStrategy", "MirroredStrategy", False),
        ("MultiWorkerMirroredStrategy", "OneDeviceStrategy", False),
        ("model.fit(data, epochs=3)", "model.evaluate(data)", True),
        ("model.fit(data, epochs=3)", "model.train_on_batch(data)", True),
        ("model.fit(data, epochs=3)", "model.predict(data)", False),
        ("model.fit(data, epochs=3)", "strategy.run(step, args=(data,))", False),
        ("import tensorflow as tf", "import tensorflow as tf, os\nos.environ['TF_USE_LEGACY_KERAS'] = '0'", False),
        ("tf.keras.", "tf_keras.", False),
        ("tf.keras.", "sklearn.", False),
    ],
)
def test_only_what_keras_3_cannot_do_needs_keras_2(old: str, new: str, *, is_needed: bool) -> None:
    assert old in TEXTBOOK
    assert needs_keras_2(TEXTBOOK.replace(old, new)) is is_needed


@pytest.mark.parametrize(
    "imports",
    [
        "from tensorflow import keras",
        "import tensorflow.keras as keras",
        "from tensorflow.keras.layers import Dense",
        "from tensorflow.python import keras",
    ],
)
def test_keras_of_tensorflow_is_recognised_however_it_is_imported(imports: str) -> None:
    assert needs_keras_2(f"{imports}\nfrom tensorflow.distribute import MultiWorkerMirroredStrategy as S\nm.fit()")


def test_a_program_may_be_spread_over_modules() -> None:
    model = "import tensorflow as tf\ndef build(): return tf.keras.Sequential()"
    main = "import model\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\nmodel.build().fit(x)"

    assert needs_keras_2(main, model)
    assert not needs_keras_2(main)
    assert not needs_keras_2(model)


def test_the_package_keras_is_keras_3_whatever_the_variable_says() -> None:
    (mistake,) = needs(TEXTBOOK.replace("import tensorflow as tf", "import tensorflow as tf\nimport keras"))

    assert isinstance(mistake, ScriptMistake)
    assert "from tensorflow import keras" in mistake.remedy


@pytest.mark.parametrize(
    ("tensorflow", "command"),
    [
        ({"tensorflow-cpu": "2.21.0"}, "{install} --no-deps 'tf-keras==2.21.*'"),
        ({"tensorflow": "2.19.1"}, "{install} --no-deps 'tf-keras==2.19.*'"),
        ({}, "{install} --no-deps tf-keras"),
    ],
)
def test_where_keras_2_is_missing_the_remedy_installs_that_of_tensorflow_s_version(
    tensorflow: Mapping[str, str], command: str
) -> None:
    (mistake,) = needs(TEXTBOOK, installed={"keras": "3.15.1", **tensorflow})

    assert isinstance(mistake, ScriptMistake)
    assert mistake.remedy == command


@pytest.mark.parametrize("installed", [{}, {"tensorflow": "2.15.1", "keras": "2.15.0"}])
def test_an_environment_with_keras_2_alone_or_with_unknown_packages_needs_nothing(installed: Mapping[str, str]) -> None:
    assert needs(TEXTBOOK, installed=installed) == []
