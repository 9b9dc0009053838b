"""Scripts as people bring them, which know nothing of Tarragon, run as they are."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandResult
from tests.cli.manifests import command, group, job
from tests.e2e.user import User

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TEXTBOOK = """
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
images = np.random.RandomState(0).rand(64, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((images, images.sum(1))).repeat().batch(16)
callbacks = [tf.keras.callbacks.TensorBoard("logs"), tf.keras.callbacks.ModelCheckpoint("models/{epoch}.keras")]
model.fit(data, epochs=2, steps_per_epoch=3, verbose=2, callbacks=callbacks)
"""


def runs(user: User, text: str, *options: str, **groups: int) -> CommandResult:
    """The script in replicas of these numbers."""
    (user.folder / "train.py").write_text(text)
    program = command("python", "train.py")
    made = job("train", **{name: group(program, replicas) for name, replicas in groups.items()})
    return user.run(user.file("job.json", made), *options)


@pytest.mark.tensorflow
def test_the_textbook_script_trains_with_keras_2(user: User) -> None:
    ended = runs(user, TEXTBOOK, Worker=2)

    assert ended.code == 0, ended.out + ended.err
    assert "note: TF_USE_LEGACY_KERAS=1 is set in all replicas: Keras 3" in ended.err
    assert (user.folder / "models/2.keras").is_file()


ARRAY = """
import numpy as np

batch = np.arange(900.0).reshape(900, 1)
raise ValueError(f"the batch {batch!r} has the shape {batch.shape}")
"""


def test_an_exception_is_seen_however_large_the_array_is_that_it_shows(user: User) -> None:
    failed = runs(user, ARRAY, Worker=1)
    why = user("why", "train").out

    line = "ValueError: the batch array([[  0.],"
    for text in (failed.out[failed.out.index("Failed  train") :], why):
        excerpt = [each.removeprefix("  │ ") for each in text.splitlines() if each.startswith("  │ ")]
        assert line in excerpt
        assert f'  File "{user.folder}/train.py", line 5, in <module>' in excerpt
        assert excerpt[-1].endswith("has the shape (900, 1)")
        assert len(excerpt) < 10
    assert why.splitlines()[0].endswith(f"{line} … [899.]]) has the shape (900, 1)")
