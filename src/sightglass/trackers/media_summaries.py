# ruff: noqa: PLR0917  the parameters are PyTorch's
"""The methods of the `SummaryWriter` for pictures, sounds and shapes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from sightglass.core.audio import Audio
from sightglass.core.values import Image, Images, Tensor, Text, Value, to_host

from .pictures import by_rows, enlarged, with_boxes
from .summaries import Summaries


class MediaSummaries(Summaries):
    """Takes summaries of pictures, sounds and shapes."""

    def add_image(
        self,
        tag: str,
        img_tensor: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Log a picture.

        Args:
            tag: Its name.
            img_tensor: uint8 from 0 to 255, or floats from 0 to 1.
            global_step: The step; by default a counter.
            walltime: As in `add_scalar`.
            dataformats: What its axes are: "CHW", "HWC" or "HW"; with "N" it is several pictures.

        Raises:
            ValueError: The axes do not match the array.
        """
        pixels = by_rows(img_tensor, dataformats)
        self._log({tag: Images(pixels) if "N" in dataformats.upper() else Image(pixels)}, global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Log several pictures of one size; see `add_image`."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Value,
        box_tensor: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Sequence[str] | None = None,
    ) -> None:
        """Log a picture with red boxes; the labels become its caption.

        Args:
            tag: Its name.
            img_tensor: As in `add_image`.
            box_tensor: Shape (n, 4): left, top, right and bottom of each box, in pixels.
            global_step: The step; by default a counter.
            walltime: As in `add_scalar`.
            rescale: By how much the picture is enlarged.
            dataformats: As in `add_image`.
            labels: A label for each box.

        Raises:
            ValueError: The axes do not match the array.
        """
        pixels = enlarged(with_boxes(by_rows(img_tensor, dataformats), to_host(box_tensor)), rescale)
        self._log({tag: Image(pixels, caption=", ".join(labels or ()))}, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Value | list[Value],
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Log a Matplotlib figure, or several, as `{tag}/0` and so on; they are drawn here.

        Args:
            tag: Its name.
            figure: The figure, or a list of figures.
            global_step: The step; by default a counter.
            close: Whether pyplot closes it afterwards.
            walltime: As in `add_scalar`.
        """
        several = figure if isinstance(figure, list) else [figure]
        drawn: Any = {str(i): each for i, each in enumerate(several)} if isinstance(figure, list) else figure
        self._log({tag: drawn}, global_step, walltime)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if close and pyplot is not None:
            for each in several:
                pyplot.close(each)

    def add_video(
        self,
        tag: str,
        vid_tensor: Value,
        global_step: float | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Record nothing: a run has no value type for films. The call is counted."""
        self._leave_out("add_video", "a run has no value type for films; log its frames with add_images")

    def add_audio(
        self,
        tag: str,
        snd_tensor: Value,
        global_step: float | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Log a sound.

        Args:
            tag: Its name.
            snd_tensor: Shape (1, n): floats from -1 to 1.
            global_step: The step; by default a counter.
            sample_rate: Samples in a second.
            walltime: As in `add_scalar`.
        """
        samples = np.atleast_1d(np.squeeze(np.asarray(to_host(snd_tensor))))
        floats = samples if samples.dtype.kind == "f" else samples.astype(np.float32)
        self._log({tag: Audio(floats, sample_rate)}, global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: Value,
        colors: Value | None = None,
        faces: Value | None = None,
        config_dict: Any = None,
        global_step: float | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log a mesh as arrays: `{tag}/vertices`, `{tag}/colors` and `{tag}/faces`. `config_dict` has no effect."""
        parts = {"vertices": vertices, "colors": colors, "faces": faces}
        self._log(
            {tag: {name: Tensor(part) for name, part in parts.items() if part is not None}}, global_step, walltime
        )

    def add_embedding(
        self,
        mat: Value,
        metadata: Sequence[Any] | None = None,
        label_img: Value | None = None,
        global_step: float | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Log points of an embedding as an array, with their labels as a text and their pictures.

        Args:
            mat: The points, shape (n, dimensions): recorded as `{tag}/mat`.
            metadata: A label for each, or a row of labels: `{tag}/metadata`, a line for each point.
            label_img: A picture for each, shape (n, channels, height, width): `{tag}/label_img`.
            global_step: The step; by default a counter.
            tag: The name.
            metadata_header: The names of the labels in a row: the text's first line.
        """
        data: dict[str, Any] = {"mat": Tensor(mat)}
        if metadata is not None:
            rows = [metadata_header, *metadata] if metadata_header else metadata
            data["metadata"] = Text(
                "\n".join("\t".join(map(str, r)) if isinstance(r, list | tuple) else str(r) for r in rows)
            )
        if label_img is not None:
            data["label_img"] = Images(by_rows(label_img, "NCHW"))
        self._log({tag: data}, global_step, None)
