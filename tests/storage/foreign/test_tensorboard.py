"""TensorBoard's files: read as written by its own library and others, and written so that TensorBoard reads them."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightglass.core.errors import WireError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Tensor, Text, type_name
from sightglass.storage.foreign import tensorboard, tensorboard_charts
from sightglass.storage.foreign.tensorboard import decode_event, encode_event
from sightglass.storage.foreign.tensorboard_charts import curve_of, rows_of
from sightglass.storage.format import wav
from sightglass.storage.format.framing import frame
from sightglass.storage.format.png import encode_png
from sightglass.storage.format.summary import (
    TENSORBOARD_VERSION,
    bytes_field,
    double_field,
    encode_version,
    from_raw,
    read_event,
    varint_field,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
WALL_TIME = 1_700_000_000.25
LARGEST = float(np.finfo(float).max)


def payloads(name):
    """Return the payloads of a file, without checking their checksums."""
    data, place = memoryview((FIXTURES / name).read_bytes()), 0
    while place < len(data):
        (n,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + n]
        place += n + 16


def decoded(name):
    plugins = {}
    return [item for payload in payloads(name) for item in decode_event(payload, plugins)]


@pytest.fixture(scope="module")
def x():
    """What tensorboardX wrote."""
    return decoded("tensorboardx.out.events")


@pytest.fixture(scope="module")
def tf():
    """What TensorFlow 2 would write."""
    return decoded("tensorflow.out.events")


def of_step(logged, step, tag):
    (found,) = (item for item in logged if (item.step, item.tag) == (step, tag))
    return found


def joined(parts):
    return memoryview(b"".join(map(bytes, parts)))


def encoded(values, *, step=7, wall_time=1.25):
    parts, left_out = encode_event(values, step=step, wall_time=wall_time)
    return joined(parts), left_out


def only(payload, plugins=None):
    (found,) = decode_event(payload, plugins)
    return found


def event_of(*fields):
    return joined([double_field(1, 1), *bytes_field(5, *bytes_field(1, *fields))])


def of_proto(**value):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    event = Event(wall_time=1, step=3, summary=Summary(value=[Summary.Value(tag="a", **value)]))
    return memoryview(event.SerializeToString())


@pytest.mark.parametrize("name", ["tensorboardx.out.events", "tensorflow.out.events"])
def test_the_version_is_the_first_record(name):
    first, *others = payloads(name)

    assert read_event(first).version == "brain.Event:2"
    assert decode_event(first) == []
    assert {read_event(payload).version for payload in others} == {None}


def test_types_are_those_of_the_values(x, tf):
    known = [item for item in [*x, *tf] if item.kind not in ("unknown", "told", "audio")]

    assert [item.type for item in known] == [type_name(item.value) for item in known]


def test_scalars_of_tensorboardx(x):
    loss = of_step(x, 1000, "loss")

    assert (loss.value, loss.wall_time, loss.stored_as, loss.kind) == (100.0, WALL_TIME + 1000, "float32", "scalar")
    assert of_step(x, 1, "loss2").value == float(np.float32(0.1))
    assert of_step(x, 0, "loss").value == 0.0


@pytest.mark.parametrize("step", [0, 1, 1000])
def test_histograms_of_tensorboardx(x, step):
    rng = np.random.default_rng(step)
    weights, default = rng.normal(size=1000), rng.normal(size=1000)

    counts, edges = np.histogram(weights, bins=10)

    np.testing.assert_array_equal(of_step(x, step, "weights").value.counts, counts)
    np.testing.assert_allclose(of_step(x, step, "weights").value.edges, edges)
    histogram = of_step(x, step, "default").value
    assert histogram.edges[[0, -1]].tolist() == [default.min(), default.max()]
    assert histogram.counts.tolist() == np.histogram(default, bins=histogram.edges)[0].tolist()
    assert of_step(x, step, "zeros").value == Histogram.from_counts([5], [-0.5, 0.5])


def test_images_and_texts_of_tensorboardx(x):
    digit = of_step(x, 1, "digit")

    assert (digit.kind, digit.value.media_type) == ("image", "image/png")
    assert of_step(x, 1000, "note/text_summary").value == Text("step *1000* ü")


def test_hyperparameters_say_what_the_run_is(x):
    assert [(item.tag, item.value) for item in x if item.kind == "told"] == [
        ("_hparams_/experiment", {"metrics": ["accuracy"]}),
        ("_hparams_/session_start_info", {"config": {"lr": 0.1}}),
        ("_hparams_/session_end_info", {}),
    ]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_later_value_without_metadata_is_read_as_the_first_one(tf, step):
    rng = np.random.default_rng(step)
    counts, edges = np.histogram(rng.normal(size=50), bins=5)

    assert (of_step(tf, step, "loss").value, of_step(tf, step, "loss").dtype) == (0.5 * step, "float32")
    assert of_step(tf, step, "note").value == Text(f"at {step}")
    assert of_step(tf, step, "table").value == Text("a\nb\nc\nd")
    assert of_step(tf, step, "weights").value == Histogram.from_counts(counts, edges)
    assert of_step(tf, step, "empty").value.total == 0
    assert of_step(tf, step, "same").value == Histogram.from_counts([4], [1.5, 2.5])
    assert [figure.media_type for figure in of_step(tf, step, "images").value] == ["image/png"] * 2
    assert of_step(tf, step, "one").value == of_step(tf, step, "images").value[step % 2]


def test_meshes_are_named_not_shown_as_arrays():
    tensor = tensorboard_charts.encode_value(np.zeros((1, 3, 3), np.float32))
    metadata = bytes_field(9, *bytes_field(1, *bytes_field(1, b"mesh")))
    logged = only(event_of(*bytes_field(1, b"car_VERTEX"), *tensor, *metadata))
    assert (logged.kind, logged.type) == ("unknown", "mesh")


def test_the_metadata_of_the_first_value_hold_for_a_later_one():
    plugins = {}
    content = [*varint_field(1, 7).split(b"|"), *bytes_field(8, b"hello")]
    text_metadata = bytes_field(9, *bytes_field(1, *bytes_field(1, b"text")))
    audio_metadata = bytes_field(9, *bytes_field(1, *bytes_field(1, b"audio")))
    tensor = [*bytes_field(1, b"a"), *bytes_field(8, *content)]

    kinds = [only(event_of(*tensor, *m), plugins).kind for m in (audio_metadata, text_metadata, ())]

    assert kinds == ["audio"] * 3
    assert only(event_of(*tensor, *text_metadata)).kind == "text"


@pytest.mark.parametrize(
    ("i", "array"),
    list(
        enumerate(
            [
                np.arange(6, dtype=np.float32).reshape(2, 3) + 2,
                np.array([2**53 + 1, -1, 2]),
                np.array([1e300, 1e-320]),
                np.array([[True, False]]),
                np.array([1.5, -2.25, 2], np.float16),
                np.array([1 + 2j, 3j], np.complex64),
                np.array([1 + 2j]),
                np.array([-5]),
                np.array([-5], np.int8),
                np.array([True]),
                np.array([-1.5], np.float16),
                np.array([2**64 - 1], np.uint64),
            ]
        )
    ),
)
def test_arrays_keep_their_dtype(tf, i, array):
    read = of_step(tf, 2, f"array/{i}")

    assert read.value.dtype == array.dtype
    assert (read.dtype, read.stored_as, read.kind) == (array.dtype.name, "", "tensor")
    np.testing.assert_array_equal(read.value, array)


def test_a_tensor_without_dimensions_is_a_number(tf):
    assert (of_step(tf, 2, "array/12").value, of_step(tf, 2, "array/12").type) == (2, "int")


def test_a_single_number_stands_for_all_without_taking_memory(tf):
    repeated = of_step(tf, 1, "repeated").value

    assert repeated.tolist() == [7, 7, 7]
    assert repeated.strides == (0,)


def test_graphs_are_skipped(tf):
    assert [(item.tag, item.type, item.value) for item in tf if item.kind == "unknown"] == [("", "graph", None)]


def test_what_is_no_sound_is_refused_when_it_is_read(tf):
    logged = next(item for item in tf if item.tag == "sound")
    assert (logged.kind, logged.type) == ("audio", "Audio")
    with pytest.raises(WireError, match=r"WAV.*b'RIFF'"):
        logged.read()


def test_sounds_of_another_format_are_named():
    sound = bytes_field(6, *bytes_field(4, b"ID3"), *bytes_field(5, b"audio/mpeg"))
    logged = only(event_of(*bytes_field(1, b"song"), *sound))
    assert (logged.kind, logged.type) == ("unknown", "audio/mpeg")


@pytest.mark.parametrize("columns", [1, 2])
def test_sounds_in_a_tensor_are_all_read(columns):
    sounds = [Audio(np.arange(n, dtype=np.int16), 8_000) for n in (3, 5)]
    strings = [part for one in sounds for part in (wav.encode_wav(one), b"label")[:columns]]
    tensor = [
        *tensorboard_charts.encode_tensor(7, (2, 2) if columns == 2 else (2,)),
        *(f for s in strings for f in bytes_field(8, s)),
    ]
    metadata = bytes_field(9, *bytes_field(1, *bytes_field(1, b"audio")))
    logged = only(event_of(*bytes_field(1, b"a"), *bytes_field(8, *tensor), *metadata))
    assert logged.type == "tuple of 2"
    assert [one.value.tolist() for one in logged.value] == [[0, 1, 2], [0, 1, 2, 3, 4]]


def test_tensorboard_reads_the_sounds_that_are_written():
    from tensorboard.compat.proto.event_pb2 import Event

    samples = np.array([[1, -2], [3, 4]], np.int16)
    parts, left_out = tensorboard.encode_event({"tone": Audio(samples, 8_000)}, step=1, wall_time=1.0)
    (value,) = Event.FromString(b"".join(parts)).summary.value
    assert (value.tag, left_out) == ("tone", {})
    audio = value.audio
    assert (audio.sample_rate, audio.num_channels, audio.length_frames) == (8_000, 2, 2)
    assert audio.content_type == "audio/wav"
    np.testing.assert_array_equal(wav.decode_wav(audio.encoded_audio_string).value, samples)


@given(hnp.arrays(st.sampled_from(["float32", "float64", "int64"]), st.tuples(st.just(6), st.integers(1, 20))))
def test_a_precision_recall_curve_goes_back_as_the_summary_that_it_was(rows):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.pr_curve.metadata import PLUGIN_NAME, parse_plugin_metadata
    from tensorboard.util.tensor_util import make_ndarray

    parts, left_out = encode_event({"pr": curve_of(rows)}, step=1, wall_time=1.0)

    (value,) = Event.FromString(b"".join(parts)).summary.value
    plugin = value.metadata.plugin_data
    assert (left_out, plugin.plugin_name) == ({}, PLUGIN_NAME)
    assert parse_plugin_metadata(plugin.content).num_thresholds == rows.shape[1]
    np.testing.assert_array_equal(make_ndarray(value.tensor), rows)
    assert make_ndarray(value.tensor).dtype == rows.dtype
    read = only(joined(parts))
    assert read.kind == "table"
    np.testing.assert_array_equal(rows_of(read.value), rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recall": ["high"] * 3}, "support tables of precision-recall curves only, got Table"),
        ({"area": np.zeros(3)}, "support tables of precision-recall curves only, got Table"),
        ({"threshold": np.array([0, 0.1, 1])}, "at thresholds that are evenly spaced from 0 to 1$"),
    ],
)
def test_other_tables_are_left_out_with_the_reason(change, message):
    table = Table(curve_of(np.zeros((6, 3))).value | change)
    parts, left_out = encode_event({"t": table}, step=1, wall_time=1.0)
    assert parts == []
    assert re.search(message, left_out["t"])


@given(
    st.sampled_from(sorted(tensorboard_charts.DATA_TYPES.keys() - {"bfloat16"})),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    st.booleans(),
    st.data(),
)
def test_tensors_read_as_tensorboard_reads_them(name, shape, as_content, data):
    from tensorboard.util.tensor_util import make_ndarray, make_tensor_proto

    array = data.draw(hnp.arrays(name, shape))
    proto = make_tensor_proto(array)
    if as_content:
        proto.tensor_content = array.tobytes()

    read = only(of_proto(tensor=proto)).value

    theirs = array if name in ("uint32", "uint64") else make_ndarray(proto)  # which TensorBoard cannot read
    np.testing.assert_array_equal(np.asarray(read, name), theirs)
    assert np.shape(read) == shape


@pytest.mark.parametrize(
    ("shape", "numbers"),
    [([2**62, 2**62], 1), ([2**40], 1), ([-1], 1), ([-1, -2], 1), ([3], 2), ([2], 0), ([1] * 100, 1)],
)
def test_a_shape_that_does_not_fit_is_refused(shape, numbers):
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    proto = TensorProto(dtype=1, float_val=[1.0] * numbers)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)

    with pytest.raises(WireError, match="shape"):
        only(of_proto(tensor=proto)).value.sum()


def test_sentinels_of_old_histograms_become_the_least_and_greatest_value():
    from tensorboard.compat.proto.histogram_pb2 import HistogramProto

    histo = HistogramProto(min=-3, max=9, num=6, bucket_limit=[-LARGEST, -1, 0, 1, LARGEST], bucket=[0, 1, 2, 0, 3])

    assert only(of_proto(histo=histo)).value == Histogram.from_counts([1, 2, 0, 3], [-3, -1, 0, 1, 9])


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, -5), (-LARGEST, LARGEST)])
def test_ends_of_old_histograms_that_contradict_the_limits_lose_no_count(low, high):
    from tensorboard.compat.proto.histogram_pb2 import HistogramProto

    histo = HistogramProto(min=low, max=high, bucket_limit=[-1, 0, 1], bucket=[1, 2, 4])

    assert only(of_proto(histo=histo)).value.total == 7


def test_image_formats_are_recognised_by_their_bytes():
    from tensorboard.compat.proto.summary_pb2 import Summary

    for start, media_type in (
        (b"\xff\xd8\xff\xc0\0\x11\x08\0\1\0\2\3", "image/jpeg"),
        (b"what", "application/octet-stream"),
    ):
        payload = of_proto(image=Summary.Image(encoded_image_string=start))
        assert only(payload).value == Figure(start, media_type)


def test_tensors_of_unknown_types_are_skipped():
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    assert only(of_proto(tensor=TensorProto(dtype=24))).type == "tensor of type 24"


def written(folder, *events):
    """Write an event file as `framing` frames it, and return TensorBoard's own reading of it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    name = tensorboard.file_name(started=WALL_TIME, hostname="host", pid=1)
    with (folder / name).open("wb") as file:
        for parts in (encode_version(TENSORBOARD_VERSION, WALL_TIME), *events):
            file.writelines(frame(parts))
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0, "images": 0, "histograms": 0})
    return accumulator.Reload()


def test_written_values_are_read_by_tensorboard(tmp_path):
    from tensorboard.util.tensor_util import make_ndarray

    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    values = {
        "loss": 0.5,
        "nested": {"n": 3},
        "weights": Histogram([0.0, 1.0, 1.0], bins=2),
        "kernel": Tensor(np.arange(6).reshape(2, 3)),
        "complex": np.array([1 + 2j]),
        "note": Text("hello *you* ü"),
        "image": Image(pixels / 255),
        "images": Images(np.zeros((9, 2, 2))),
        "figure": Figure(encode_png(pixels)),
    }
    parts, left_out = encode_event(values, step=2**40, wall_time=WALL_TIME)

    read = written(tmp_path, parts)

    assert left_out == {}
    assert read.Tags()["scalars"] == ["loss", "nested/n"]
    (loss,) = read.Scalars("loss")
    assert (loss.value, loss.step, loss.wall_time) == (0.5, 2**40, WALL_TIME)
    (weights,) = read.Histograms("weights")
    assert (weights.histogram_value.bucket_limit, weights.histogram_value.bucket) == ([0.5, 1.0], [1, 2])
    assert (weights.histogram_value.min, weights.histogram_value.num, weights.histogram_value.sum) == (0, 3, 1.75)
    assert make_ndarray(read.Tensors("kernel")[0].tensor_proto).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert make_ndarray(read.Tensors("complex")[0].tensor_proto).tolist() == [1 + 2j]
    assert make_ndarray(read.Tensors("note")[0].tensor_proto).item().decode() == "hello *you* ü"
    assert read.SummaryMetadata("note").plugin_data.plugin_name == "text"
    assert [(i.height, i.width) for tag in ("image", "images", "figure") for i in read.Images(tag)] == [
        (2, 2),
        (4, 16),
        (2, 2),
    ]
    assert read.Images("figure")[0].encoded_image_string == values["figure"].data


def test_unsupported_values_are_left_out_with_the_reason():
    payload, left_out = encoded(
        {"none": None, "webp": Figure(b"RIFF", "image/webp"), "dates": np.array(["2020"], "M8[s]"), "loss": 1}
    )

    assert [item.tag for item in decode_event(payload)] == ["loss"]
    assert left_out == {
        "none": "Expected a number, array, histogram, image, sound, figure or text, got NoneType",
        "webp": "TensorBoard event files support PNG, JPEG and GIF images only",
        "dates": "Expected a number, array, histogram, image, sound, figure or text, got ndarray",
    }


@given(
    st.sampled_from(sorted(tensorboard_charts.DATA_TYPES)),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    st.data(),
)
def test_arrays_round_trip(name, shape, data):
    dtype = from_raw(b"", name).dtype
    array = data.draw(hnp.arrays(np.float32 if name == "bfloat16" else dtype, shape)).astype(dtype)

    read = only(encoded({"a": array})[0]).value

    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert read.tobytes() == array.tobytes()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(1, 9))
def test_histograms_round_trip_except_for_empty_ends(samples, bins):
    histogram = Histogram(samples, bins=bins)

    read = only(encoded({"a": histogram})[0]).value

    filled = np.flatnonzero(histogram.counts)
    assert read.total == histogram.total
    assert read.counts.tolist() == histogram.counts[filled[0] : filled[-1] + 1].tolist()


@pytest.mark.parametrize("name", ["tensorboardx.out.events", "tensorflow.out.events"])
@given(data=st.data())
def test_changed_bytes_raise_nothing_but_wire_errors(name, data):
    payload = bytearray(data.draw(st.sampled_from(list(payloads(name)))))
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
        for item in decode_event(memoryview(data)):
            item.value
    except WireError:
        pass


@pytest.mark.parametrize(
    ("name", "started"),
    [
        ("events.out.tfevents.1700000000.host.1.0", 1700000000),
        ("events.out.tfevents.17.host.profile-empty", None),
        ("events.out.events.summary.17.0.host_MS", None),
    ],
)
def test_which_files_are_event_files(name, started):
    assert tensorboard.parse_name(name) == started
