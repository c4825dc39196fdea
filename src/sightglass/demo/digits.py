"""Handwritten digits of 8x8 pixels, small enough to travel with the package.

The 1,797 images are the test part of *Optical Recognition of Handwritten Digits*: E. Alpaydin, C. Kaynak (1998),
UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). They are those of scikit-learn's `load_digits`, in its order, stored
here as unsigned bytes from 0 to 16.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

N_CLASSES: Final = 10
SIDE: Final = 8
N_TEST: Final = 297  # leaves 1,500 for the training

_MAX_LEVEL: Final = 16.0


def load() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Load the digits, shuffled and split in the same way every time.

    Returns:
        Training images of shape (1500, 64), float32 from 0 to 1, and their labels of shape (1500,), int64 from 0 to 9;
        then test images of shape (297, 64) and their labels of shape (297,).

    Example:
        >>> train_images, train_labels, test_images, test_labels = load()
        >>> train_images.shape, test_labels.shape
        ((1500, 64), (297,))
    """
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        images = stored["images"].astype(np.float32) / _MAX_LEVEL
        labels = stored["labels"].astype(np.int64)
    # RandomState is the one generator whose numbers NumPy promises never to change.
    order = np.random.RandomState(0).permutation(len(labels))
    test, train = order[:N_TEST], order[N_TEST:]
    return images[train], labels[train], images[test], labels[test]
