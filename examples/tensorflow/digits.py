"""The images that the examples train on: 8x8 handwritten digits, without a download."""

from __future__ import annotations

import numpy as np


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (training images, labels), (test images, labels): the same split in every replica.

    The digits come from scikit-learn. The official TensorFlow image lacks it; there, synthetic images of the same shape
    are used, and the log says so. Such a run tests the cluster, not the model.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        print("data: SYNTHETIC images (ten noisy patterns), because scikit-learn is not installed")
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
