"""Pictures as PNG files."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightglass.storage.format.png import Picture, encode_png, grid, picture, pixels, rgb

IMAGES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 3, 4])))


def decoded(data):
    """Decode what `encode_png` writes, checking every chunk."""
    chunks, place = {}, 8
    while place < len(data):
        n, kind = struct.unpack_from(">I4s", data, place)
        content, (crc,) = data[place + 8 : place + 8 + n], struct.unpack_from(">I", data, place + 8 + n)
        assert zlib.crc32(kind + content) == crc
        chunks[kind], place = content, place + 12 + n
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest, list(chunks)[-1]) == (8, [0, 0, 0], b"IEND")
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, {0: 1, 2: 3, 6: 4}[colour])


@given(IMAGES)
def test_pixels_survive(image):
    data = encode_png(image)

    np.testing.assert_array_equal(decoded(data), image)
    assert picture(data) == Picture("image/png", *image.shape)


@given(IMAGES)
def test_pillow_reads_what_is_written(image):
    open_image = pytest.importorskip("PIL.Image").open

    np.testing.assert_array_equal(np.array(open_image(io.BytesIO(encode_png(image)))).reshape(image.shape), image)


def test_floats_are_scaled_and_cut_off():
    assert pixels(np.array([0.0, 0.5, 1.0, 2.0, -1.0, np.nan, np.inf])).tolist() == [0, 128, 255, 255, 0, 0, 255]
    assert pixels(np.array([300, -3, 7])).tolist() == [255, 0, 7]
    assert pixels(np.array([True, False])).tolist() == [255, 0]


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (2, 2, 5), (0, 3), (1, 1, 1, 1)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        encode_png(np.zeros(shape))


def test_texts_are_refused():
    with pytest.raises(ValueError, match="dtype <U1"):
        encode_png(np.array([["a"]]))


@given(st.integers(1, 20), st.sampled_from([(), (1,), (3,)]))
def test_a_grid_has_each_picture_at_its_place(n, channels):
    images = np.random.default_rng(n).integers(0, 256, (n, 2, 3, *channels), np.uint8)

    canvas = grid(images)

    assert canvas.shape == (2 * -(-n // 8), 3 * min(n, 8), *channels)
    for i, image in enumerate(images):
        row, column = divmod(i, 8)
        np.testing.assert_array_equal(canvas[2 * row : 2 * row + 2, 3 * column : 3 * column + 3], image)
    assert canvas.sum(dtype=int) == images.sum(dtype=int)


@pytest.mark.parametrize("shape", [(2, 2), (0, 2, 2), (1, 2, 2, 3, 1)])
def test_a_grid_of_other_shapes_is_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        grid(np.zeros(shape))


def test_grey_becomes_three_colours_and_the_transparent_white():
    assert rgb(np.array([[7]], np.uint8)).tolist() == [[[7, 7, 7]]]
    assert rgb(np.array([[[9, 9, 9, 0], [9, 8, 7, 255]]], np.uint8)).tolist() == [[[255, 255, 255], [9, 8, 7]]]


@pytest.mark.parametrize("form", ["png", "jpeg", "gif"])
@pytest.mark.parametrize(("mode", "n_channels"), [("L", 1), ("RGB", 3)])
def test_sizes_of_other_programs_files_are_read(form, mode, n_channels):
    new = pytest.importorskip("PIL.Image").new
    file = io.BytesIO()
    new(mode, (300, 20)).save(file, form, comment=b"a comment")

    assert picture(memoryview(file.getvalue())) == Picture(f"image/{form}", 20, 300, 3 if form == "gif" else n_channels)


@given(st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a"]), st.binary(max_size=40))
def test_any_bytes_are_a_picture_or_none(start, rest):
    picture(start + rest)
