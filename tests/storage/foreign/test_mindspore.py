"""MindSpore's files: read as written by MindSpore, and written so that its own messages read them."""

import struct
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.codec import decode, encode
from sightglass.core.errors import WireError
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text, type_name
from sightglass.storage.foreign import mindspore
from sightglass.storage.foreign.event_format import from_buckets
from sightglass.storage.foreign.mindspore import decode_event, encode_event
from sightglass.storage.format.png import Picture, encode_png, picture
from sightglass.storage.format.summary import bytes_field, double_field, read_event, varint_field

from ..schema import message  # noqa: TID252  tests are not a package

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAN = float("nan")
STORED = ("min", "max", "sum", "count", "nan_count", "pos_inf_count", "neg_inf_count")


def payloads(name):
    """Return the payloads of a file, without checking their checksums."""
    data, place = memoryview((FIXTURES / name).read_bytes()), 0
    while place < len(data):
        (n,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + n]
        place += n + 16


@pytest.fixture(scope="module")
def theirs():
    """MindSpore's own Event, from the descriptors of mindspore 2.10."""
    pool = DescriptorPool()
    for name in ("anf_ir", "summary"):
        file = pool.AddSerializedFile((FIXTURES / f"mindspore_{name}.desc").read_bytes())
    return GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Event"))


@pytest.fixture(scope="module")
def logged():
    return [item for payload in payloads("mindspore.out.events") for item in decode_event(payload)]


def of_step(logged, step, tag, kind):
    (found,) = (item for item in logged if (item.step, item.tag, item.kind) == (step, tag, kind))
    return found


def joined(parts):
    return memoryview(b"".join(map(bytes, parts)))


def encoded(values, **other):
    parts, left_out = encode_event(values, step=7, wall_time=1.25, **other)
    return joined(parts), left_out


def only(payload):
    (found,) = decode_event(payload)
    return found


def test_the_version_is_the_first_record():
    first, *others = payloads("mindspore.out.events")

    assert read_event(first).version == "MindSpore.Event:1"
    assert {read_event(payload).version for payload in others} == {None}
    assert decode_event(first) == []


def test_every_value_of_every_step_is_there(logged):
    assert [item.step for item in logged] == [1] * 16 + [2] * 16 + [3] * 16 + [0]
    assert {item.kind for item in logged} == {"scalar", "tensor", "histogram", "image"}
    assert logged[0].wall_time == pytest.approx(1.79524775e9, abs=100)


def test_types_are_those_of_the_values(logged):
    assert [item.type for item in logged] == [type_name(item.value) for item in logged]


def test_scalars_are_read_as_stored(logged):
    loss, wide = of_step(logged, 2, "loss", "scalar"), of_step(logged, 2, "wide", "scalar")

    assert (loss.value, loss.stored_as) == (0.75, "float32")
    assert wide.value == float(np.float32(0.1))
    assert logged[-1].value == 0.0


def test_a_tag_may_be_a_scalar_and_a_tensor(logged):
    assert of_step(logged, 3, "kernel", "scalar").value == 3.0
    assert of_step(logged, 3, "kernel", "tensor").value.tolist() == [[0, 3, 6], [9, 12, 15]]


@pytest.mark.parametrize(
    ("tag", "dtype", "stored_as", "value"),
    [
        ("kernel", "float32", "", [[0, 1, 2], [3, 4, 5]]),
        ("ids", "int64", "float32", [2.0**53, -1, 7]),
        ("mask", "bool", "float32", [[1, 0]]),
        ("half", "float16", "float32", [1.5, -2.25]),
        ("huge", "float64", "float32", [float("inf"), 0, 2.5]),
        ("empty", "float32", "", np.zeros((0, 3)).tolist()),
    ],
)
def test_tensors_say_what_they_were_and_are_stored_as(logged, tag, dtype, stored_as, value):
    tensor = of_step(logged, 1, tag, "tensor")

    assert (tensor.dtype, tensor.stored_as) == (dtype, stored_as)
    assert tensor.value.dtype == np.float32
    assert tensor.value.tolist() == value


def test_an_empty_tensor_keeps_its_shape(logged):
    assert of_step(logged, 1, "empty", "tensor").value.shape == (0, 3)


def test_histograms_are_those_that_were_counted(logged):
    values = np.random.default_rng(2).normal(size=100).astype(np.float32)

    histogram = of_step(logged, 2, "weights", "histogram").value

    counts, edges = np.histogram(
        values, bins=np.linspace(float(values.min()), float(values.max()), 12, dtype=np.float32)
    )
    np.testing.assert_array_equal(histogram.counts, counts)
    np.testing.assert_allclose(histogram.edges, edges, rtol=1e-7)


@pytest.mark.parametrize(
    ("tag", "counts", "edges", "outside"),
    [
        ("holes", [1, 2], [1, 2, 3], (1, 1, 2)),
        ("same", [0, 7, 0], [2.5, 2 + 5 / 6, 3 + 1 / 6, 3.5], (0, 0, 0)),
        ("none", [0], [0, 1], (2, 0, 0)),
        ("bits", [40], [0, 1], (0, 0, 0)),
    ],
)
def test_peculiar_histograms_lose_no_count(logged, tag, counts, edges, outside):
    histogram = of_step(logged, 1, tag, "histogram").value

    assert histogram.counts.tolist() == counts
    assert (histogram.n_nan, histogram.n_posinf, histogram.n_neginf) == outside
    np.testing.assert_allclose(histogram.edges, edges, rtol=1e-6)


def test_histograms_of_float16_whose_buckets_overlap_by_a_rounding_are_intact():
    found = [item for payload in payloads("mindspore_half.out.events") for item in decode_event(payload)]
    assert len(found) == 9
    for item in found:
        scale, offset = {"half/1": (1, 0), "half/0.05": (0.05, 1), "half/100": (100, 0)}[item.tag]
        rng = np.random.default_rng(item.step)
        draws = {name: rng.normal(size=300) for name in ("half/1", "half/0.05", "half/100")}
        samples = (draws[item.tag] * scale + offset).astype(np.float16).astype(np.float64)

        histogram = item.value

        assert histogram.total == 300
        least, most, sum_ = histogram.stored
        assert (least, most) == (samples.min(), samples.max())
        assert sum_ == pytest.approx(samples.sum(), rel=1e-2, abs=1)  # summed in float16 by the writer


@pytest.mark.parametrize("tag", ["weights", "holes", "same", "none", "bits"])
def test_what_a_file_says_of_a_histogram_is_written_as_it_was(logged, tag, theirs):
    histogram = of_step(logged, 1, tag, "histogram").value
    (before,) = [
        value.histogram
        for payload in payloads("mindspore.out.events")
        if (event := theirs.FromString(bytes(payload))).step == 1
        for value in event.summary.value
        if value.tag == tag and value.HasField("histogram")
    ]

    parts, _ = encode_event({tag: histogram}, step=1, wall_time=1.0)
    after = theirs.FromString(bytes(joined(parts))).summary.value[0].histogram

    assert [getattr(after, name) for name in STORED] == [getattr(before, name) for name in STORED]
    assert sum(one.count for one in after.buckets) == sum(one.count for one in before.buckets)


def test_what_a_file_says_of_a_histogram_travels():
    histogram = from_buckets([0, 1], [1, 2], [3, 4], stored=(0.25, 1.75, 9.0))

    assert decode(*encode(histogram)) == histogram
    assert histogram != from_buckets([0, 1], [1, 2], [3, 4])


def test_images_are_their_files(logged):
    grey = of_step(logged, 1, "grey", "image").value

    assert grey.media_type == "image/png"
    assert picture(grey.data) == Picture("image/png", 4, 15, 3)


def test_unknown_values_are_listed():
    value = joined([*bytes_field(1, b"loss"), *bytes_field(10, b"")])
    payload = joined([double_field(1, 2.0), *bytes_field(5, *bytes_field(1, value)), *bytes_field(4, b"")])

    assert [(item.tag, item.kind, item.type, item.value) for item in decode_event(payload)] == [
        ("loss", "unknown", "loss landscape", None),
        ("", "unknown", "graph", None),
    ]


def test_our_own_blocks_are_skipped():
    event = message("Event")(wall_time=1)
    event.block = b"x"

    assert only(memoryview(event.SerializePartialToString())).type == "block"


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (varint_field(2, 1), "wall time"),
        (joined([double_field(1, 1), *bytes_field(5, *bytes_field(1, b""))]), "tag"),
    ],
)
def test_missing_fields_are_refused(payload, what):
    with pytest.raises(WireError, match=what):
        decode_event(memoryview(payload))


def test_written_values_are_read_by_mindspore(theirs):
    histogram = Histogram([0.0, 1.0, 1.0, NAN, float("inf")], bins=2)
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    values = {
        "loss": 0.5,
        "n": 3,
        "nested": {"flag": True, "half": np.float16(1.5)},
        "kernel": Tensor(np.arange(6, dtype=np.int64).reshape(2, 3)),
        "list": [1.5, 2.5],
        "weights": histogram,
        "image": Image(pixels),
        "images": Images(np.zeros((9, 2, 2))),
        "figure": Figure(encode_png(pixels)),
    }

    payload, left_out = encoded(values)

    event = theirs.FromString(payload)
    got = {value.tag: getattr(value, value.WhichOneof("value")) for value in event.summary.value}
    assert left_out == {}
    assert (event.wall_time, event.step) == (1.25, 7)
    assert (got["loss"], got["n"], got["nested/flag"], got["nested/half"]) == (0.5, 3.0, 1.0, 1.5)
    assert list(got["kernel"].dims) == [2, 3]
    assert got["kernel"].data_type == 5
    assert list(got["kernel"].float_data) == [0, 1, 2, 3, 4, 5]
    assert list(got["list"].float_data) == [1.5, 2.5]
    assert [(b.left, b.width, b.count) for b in got["weights"].buckets] == [(0, 0.5, 1), (0.5, 0.5, 2)]
    assert (got["weights"].nan_count, got["weights"].pos_inf_count, got["weights"].neg_inf_count) == (1, 1, 0)
    assert (got["weights"].count, got["weights"].min, got["weights"].max) == (5, 0, 1)
    assert [(got[tag].height, got[tag].width, got[tag].colorspace) for tag in ("image", "images", "figure")] == [
        (2, 2, 3),
        (4, 16, 3),
        (2, 2, 3),
    ]
    assert got["figure"].encoded_image == values["figure"].data
    assert not any(len(UnknownFieldSet(part)) for part in (event, *event.summary.value, *got["weights"].buckets))


def test_unsupported_values_are_left_out_with_the_reason():
    values = {
        "text": "hello",
        "note": Text("hello"),
        "complex": np.ones(2, complex),
        "number": 1j,
        "jpeg": Figure(b"\xff\xd8\xff", "image/jpeg"),
        "strings": np.array(["a"]),
        "none": None,
        "line": Image(np.zeros(3)),
        "loss": 1.0,
    }

    payload, left_out = encoded(values)

    assert [item.tag for item in decode_event(payload)] == ["loss"]
    assert left_out == {
        "text": "MindSpore summary files do not support Text",
        "note": "MindSpore summary files do not support Text",
        "complex": "MindSpore summary files do not support arrays of complex128",
        "number": "Expected a number, array, histogram, image, sound, figure or text, got complex",
        "jpeg": "MindSpore summary files support PNG images only, got another format",
        "strings": "Expected a number, array, histogram, image, sound, figure or text, got ndarray",
        "none": "Expected a number, array, histogram, image, sound, figure or text, got NoneType",
        "line": "Expected a picture of shape (height, width[, 1, 3 or 4 channels]), got (3,)",
    }


def test_no_values_are_no_event():
    assert encode_event({"text": "hello"}, step=1, wall_time=1.0)[0] == []


@given(st.lists(st.floats(width=32), min_size=1), st.integers(1, 9))
def test_histograms_round_trip(samples, bins):
    histogram = Histogram(samples, bins=bins)

    read = only(encoded({"a": histogram})[0]).value

    assert (read.total, read.n_nan, read.n_posinf) == (histogram.total, histogram.n_nan, histogram.n_posinf)
    if len(read.counts) == bins:
        np.testing.assert_array_equal(read.counts, histogram.counts)
        np.testing.assert_allclose(read.edges, histogram.edges, atol=1e-15 * np.abs(histogram.edges).max() + 1e-30)


@given(
    st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(0, 1e300), st.integers(0, 2**40)), max_size=8),
)
def test_no_count_of_any_buckets_is_lost(buckets):
    lefts, widths, counts = zip(*buckets, strict=True) if buckets else ((), (), ())
    try:
        histogram = from_buckets(lefts, np.add(lefts, widths), counts, n_nan=3)
    except WireError:
        return

    assert histogram.total == sum(counts)
    assert (np.diff(histogram.edges) > 0).all()
    assert histogram.n_nan == 3


def test_an_edge_that_is_not_finite_costs_no_count():
    histogram = from_buckets([-np.inf, 0, 1, NAN], [0, 1, np.inf, NAN], [1, 2, 3, 4])

    assert (histogram.counts.tolist(), histogram.edges.tolist(), histogram.n_nan) == ([6], [0, 1], 4)


def test_holes_between_buckets_are_empty_bins():
    histogram = from_buckets([3, 0], [4, 1], [2, 1])

    assert (histogram.counts.tolist(), histogram.edges.tolist()) == ([1, 0, 2], [0, 1, 3, 4])


@pytest.mark.parametrize(
    ("buckets", "what"),
    [
        (([0, 1], [2, 3], [1, 1]), "do not overlap"),
        (([2], [1], [1]), "left edge"),
        (([0], [1], [-1]), r"counts from 0 to 2\*\*62"),
        (([0], [1], [1e300]), r"counts from 0 to 2\*\*62"),
        (([0], [1], [NAN]), r"counts from 0 to 2\*\*62"),
    ],
)
def test_invalid_buckets_are_refused(buckets, what):
    with pytest.raises(WireError, match=what):
        from_buckets(*buckets)


@given(st.data())
def test_changed_bytes_raise_nothing_but_wire_errors(data):
    payload = bytearray(data.draw(st.sampled_from(list(payloads("mindspore.out.events")))))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        for item in decode_event(memoryview(payload)[: data.draw(st.integers(0, len(payload)))]):
            try:
                assert item.value is not None or item.kind == "unknown"
            except WireError:
                pass
    except WireError:
        pass


@given(st.binary(max_size=100))
def test_bytes_are_an_event_or_a_wire_error(data):
    try:
        decode_event(memoryview(data))
    except WireError:
        pass


def test_names_of_files():
    assert mindspore.file_name(started=1700000000.9, rank=3, hostname="h.x") == (
        "events.out.events.summary.1700000000.3.h.x_MS"
    )


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("events.out.events.summary.1700000000.3.host_MS", (1700000000, 3)),
        ("mine.out.events.summary.17.0.a.b", (17, 0)),
        ("summary.5", (5, 0)),
        ("events.out.events.summary.17.0.host_lineage", None),
        ("events.out.events.summary.17.0.host_explain", None),
        ("ms_output.pb", None),
        ("events.out.tfevents.17.host", None),
    ],
)
def test_which_files_are_summaries(name, parsed):
    assert mindspore.parse_name(name) == parsed
