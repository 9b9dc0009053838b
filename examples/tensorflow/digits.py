"""The pictures that the examples learn from: 8x8 handwritten digits, never downloaded."""

from __future__ import annotations

import numpy as np


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (training images, labels), (test images, labels): the same split in every replica.

    The digits come with scikit-learn. The stock TensorFlow image does not have it; there, pictures of the same shape
    are made up, and the log says so. That proves the cluster, not the model.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        print("data: SYNTHETIC pictures (ten noisy patterns), because scikit-learn is not installed here")
        random = np.random.RandomState(0)
        labels = random.randint(0, 10, 1797)
        images = random.rand(10, 64)[labels] + 0.3 * random.randn(1797, 64)
    else:
        print("data: scikit-learn's digits")
        images, labels = load_digits(return_X_y=True)
        images = images / 16.0
    order = np.random.RandomState(0).permutation(len(images))
    images, labels = images[order].astype("float32"), labels[order].astype("int64")
    return (images[:1500], labels[:1500]), (images[1500:], labels[1500:])
