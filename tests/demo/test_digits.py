from __future__ import annotations

from importlib import resources

import numpy as np

from sightglass.demo import digits


def test_the_split_is_disjoint_complete_and_the_same_every_time():
    train_images, train_labels, test_images, test_labels = digits.load()
    assert train_images.shape == (1500, 64)
    assert test_images.shape == (digits.N_TEST, 64)
    with resources.files("sightglass.demo").joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        images, labels = stored["images"], stored["labels"]
    assert images.shape == (1797, 64)
    both = np.c_[np.r_[train_images, test_images] * 16, np.r_[train_labels, test_labels]].astype(np.uint8)
    assert sorted(map(bytes, both)) == sorted(map(bytes, np.c_[images, labels]))
    assert all(np.array_equal(a, b) for a, b in zip(digits.load(), digits.load(), strict=True))
    assert test_labels[:12].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5, 2, 8]


def test_pixels_are_float32_from_0_to_1_and_every_class_is_in_both_parts():
    train_images, train_labels, test_images, test_labels = digits.load()
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        assert images.dtype == np.float32
        assert images.min() == 0
        assert images.max() == 1
        assert labels.dtype == np.int64
        assert set(labels.tolist()) == set(range(digits.N_CLASSES))


def test_the_data_stay_small():
    with resources.as_file(resources.files("sightglass.demo").joinpath("digits.npz")) as path:
        assert path.stat().st_size < 120 * 1024
