"""Lightning has two packages, `lightning` and `pytorch_lightning`: one program uses one of them."""

from __future__ import annotations

import sys
from typing import Any

from sightglass.core.errors import MissingExtraError


def lightning_package(purpose: str) -> Any:
    """Return Lightning's package that the program uses.

    Raises:
        MissingExtraError: Neither package is installed, which `purpose` needs.
    """
    try:
        if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
            import pytorch_lightning as package
        else:
            import lightning.pytorch as package
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "lightning", extra="lightning", purpose=purpose) from None
    return package
