"""On what graphs and plans are judged: the options that `compare`, `bisect` and `build` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

# typer reads these at run time, on Python 3.10 too
Images = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="A photo, or a folder of photos or aligned crops. Default: the package's sample faces."),
]
Model = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Directory or ModelScope id of the float32 reference. Default: the one that was exported."),
]
Limits = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="JSON file with other limits than the package's."),
]
Limit = Annotated[int, typer.Option(min=1, help="The most pictures to take of a folder, the first by name.")]
