# ruff: noqa: PLR0917  the parameters are PyTorch's
"""A `SummaryWriter` with the interface of PyTorch's, which writes into a run.

Replace `from torch.utils.tensorboard import SummaryWriter` by `from sightglass.trackers.tensorboard import
SummaryWriter`: what the program adds can be queried while it runs, and is recorded. PyTorch and TensorBoard need not be
installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.values import Histogram, Value, to_host
from sightglass.storage.foreign.event_format import from_buckets
from sightglass.storage.foreign.tensorboard_charts import curve_of
from sightglass.training.run import Run

from .summaries import MediaSummaries, folder_name

MIN_COUNT: Final = 1e-7  # PyTorch's: no division by zero


class SummaryWriter(MediaSummaries):
    """Takes what PyTorch's `SummaryWriter` takes, and logs it in a run.

    Numbers, texts, arrays, histograms, pictures and figures become the run's own values. What a run has no value type
    for, such as sounds and graphs, is left out: the first call of each such method warns, and all are counted in
    `n_left_out`. A step that is not given is a counter.

    Example:
        >>> with SummaryWriter("example_logs", mode="disabled") as writer:
        ...     writer.add_scalar("loss", 0.5, 0)
    """

    def __init__(
        self,
        log_dir: str | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        *,
        run: Run | None = None,
        event_files: bool = False,
        **options: Any,
    ) -> None:
        """Begin a run that writes into a directory.

        Args:
            log_dir: The directory; by default `runs/{date}_{host}{comment}`. If a run has written there, it continues.
            comment: The end of the default directory's name.
            purge_step: Has no effect: of a run that was restarted, what it repeats replaces what it had.
            max_queue: Has no effect: a record is written within a second.
            flush_secs: Has no effect.
            filename_suffix: Has no effect.
            run: A run to log into instead; the writer does not end it.
            event_files: Whether to write TensorBoard's event files, too, in the folder `tensorboard` of `log_dir`.
            **options: Arguments of `sightglass.init`.

        Raises:
            TypeError: A run is given, and event files or options as well.
        """
        if run is not None and (options or event_files):
            raise TypeError(
                'Expected no options for a run that exists; give them to init, such as mirror="tensorboard"'
            )
        folder = str(log_dir or (folder_name(comment) if run is None else run.directory))
        super().__init__(folder, run, event_files, options)

    def add_histogram(
        self,
        tag: str,
        values: Value,
        global_step: float | None = None,
        bins: str | int | Sequence[float] = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Log a histogram of values.

        Args:
            tag: Its name.
            values: An array of any shape.
            global_step: The step; by default a counter.
            bins: A number of bins, edges, or a rule of `numpy.histogram_bin_edges`; by default 64 bins.
            walltime: As in `add_scalar`.
            max_bins: The largest number of bins.
        """
        if isinstance(bins, int) or (isinstance(bins, str) and bins == "tensorflow"):
            n_bins = bins if isinstance(bins, int) else 64
            histogram = Histogram(values, bins=n_bins if max_bins is None else min(n_bins, max_bins))
        else:
            samples = np.asarray(to_host(values)).ravel().astype(np.float64)  # whose range has room for any dtype's
            finite = samples[np.isfinite(samples)]
            edges = np.histogram_bin_edges(finite, bins)
            if max_bins is not None and len(edges) - 1 > max_bins:
                edges = np.append(edges[: -1 : -(-(len(edges) - 1) // max_bins)], edges[-1])
            outside: dict[str, Any] = {
                "n_nan": int(np.isnan(samples).sum()),
                "n_posinf": int(np.isposinf(samples).sum()),
            }
            counts, _ = np.histogram(finite, edges)
            histogram = Histogram.from_counts(counts, edges, n_neginf=int(np.isneginf(samples).sum()), **outside)
        self._log({tag: histogram}, global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: float | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log a histogram from its counts.

        Args:
            tag: Its name.
            min: The smallest value.
            max: The largest value.
            num: Has no effect, as `sum` and `sum_squares`: the counts say it.
            sum: Has no effect.
            sum_squares: Has no effect.
            bucket_limits: The right edge of each bucket.
            bucket_counts: The number of values in each.
            global_step: The step; by default a counter.
            walltime: As in `add_scalar`.

        Raises:
            ValueError: There are not as many counts as edges.
        """
        limits, counts = np.asarray(bucket_limits, np.float64), np.asarray(bucket_counts, np.float64)
        if limits.shape != counts.shape or limits.ndim != 1:
            raise ValueError(f"Expected an edge for each count, got shapes {limits.shape} and {counts.shape}")
        rights = np.clip(limits, min, max)
        self._log({tag: from_buckets(np.append(min, rights[:-1]), rights, counts)}, global_step, walltime)

    def add_pr_curve(
        self,
        tag: str,
        labels: Value,
        predictions: Value,
        global_step: float | None = None,
        num_thresholds: int = 127,
        weights: Value | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log a precision-recall curve as a table; see `add_pr_curve_raw`.

        Args:
            tag: Its name.
            labels: Whether each item is positive.
            predictions: The probability of each to be positive, from 0 to 1.
            global_step: The step; by default a counter.
            num_thresholds: How many points the curve has.
            weights: The weight of each item; by default 1.
            walltime: As in `add_scalar`.
        """
        truth, guesses = (np.asarray(to_host(one), np.float64).ravel() for one in (labels, predictions))
        weight = np.ones_like(truth) if weights is None else np.broadcast_to(np.asarray(to_host(weights)), truth.shape)
        bucket = np.floor(guesses * (num_thresholds - 1)).astype(int).clip(0, num_thresholds - 1)
        positives = np.bincount(bucket, truth * weight, minlength=num_thresholds)[::-1].cumsum()[::-1]
        negatives = np.bincount(bucket, (1 - truth) * weight, minlength=num_thresholds)[::-1].cumsum()[::-1]
        missed = positives[0] - positives
        precision = positives / np.maximum(MIN_COUNT, positives + negatives)
        recall = positives / np.maximum(MIN_COUNT, positives + missed)
        counts = (positives, negatives, negatives[0] - negatives, missed)
        self.add_pr_curve_raw(tag, *counts, precision, recall, global_step, num_thresholds, walltime=walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Value,
        false_positive_counts: Value,
        true_negative_counts: Value,
        false_negative_counts: Value,
        precision: Value,
        recall: Value,
        global_step: float | None = None,
        num_thresholds: int = 127,
        weights: Value | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log a precision-recall curve as a table: a row for each threshold, with four counts, precision and recall.

        `num_thresholds` and `weights` have no effect: the arrays say it.
        """
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        rows = np.stack([np.asarray(to_host(row), np.float64) for row in (*counts, precision, recall)])
        self._log({tag: curve_of(rows)}, global_step, walltime)

    def add_graph(
        self, model: object, input_to_model: object = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Record nothing: a run has no value type for graphs. The call is counted."""
        self._leave_out("add_graph", "a run has no value type for graphs; ask the model itself with sightglass.torch")

    def add_onnx_graph(self, prototxt: object) -> None:
        """Record nothing: a run has no value type for graphs. The call is counted."""
        self._leave_out("add_onnx_graph", "a run has no value type for graphs")

    def add_custom_scalars(self, layout: Mapping[str, Any]) -> None:
        """Record nothing: charts are chosen in the page. The call is counted."""
        self._leave_out("add_custom_scalars", CHARTS)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Record nothing: charts are chosen in the page. The call is counted."""
        self._leave_out("add_custom_scalars_multilinechart", CHARTS)

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Record nothing: charts are chosen in the page. The call is counted."""
        self._leave_out("add_custom_scalars_marginchart", CHARTS)

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._end(kind)


CHARTS: Final = "a run stores no layout of charts; choose them in the page, or with sightglass.plot"
