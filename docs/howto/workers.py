"""Keras on several workers, as TensorFlow's tutorial does it: every worker computes a part of each batch."""

import sys

import numpy as np
import tensorflow as tf

folder = sys.argv[1]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    layers = [tf.keras.Input((4,)), tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile(optimizer="sgd", loss="mse")

images = np.random.RandomState(0).rand(64, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((images, images.sum(1))).repeat().batch(16)
callbacks = [
    tf.keras.callbacks.TensorBoard(f"{folder}/logs"),
    tf.keras.callbacks.ModelCheckpoint(folder + "/models/{epoch}.keras"),
]
model.fit(data, epochs=2, steps_per_epoch=3, verbose=2, callbacks=callbacks)
