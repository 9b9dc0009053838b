"""Trains eight epochs, and goes on where an earlier run has ended: python resume.py FOLDER."""

import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras

folder = sys.argv[1]
crash_after = int(os.environ.get("CRASH_AFTER", "0"))


class Say(keras.callbacks.Callback):
    """Prints a line for each epoch, and ends the program as a crash would."""

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002 - as Keras calls it
        if crash_after and epoch == crash_after:
            os._exit(1)

    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch + 1} of 8, loss {logs['loss']:.3f}", flush=True)


keras.utils.set_random_seed(1)
images = np.random.default_rng(1).random((256, 8)).astype("float32")
labels = images.sum(axis=1)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
keep = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
model.fit(images, labels, epochs=8, verbose=0, callbacks=[keep, Say()])
print("done: TensorFlow", tf.__version__)
