"""How far each precision may be from float32 PyTorch: `limits.json`, or another such file by `--limits`.

docs/accuracy.md argues for the values.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from face3d_trt.errors import UsageError
from face3d_trt.names import COEFFS, GROUPS, TEXTURE, VERTEX
from face3d_trt.parity.meaning import MEASURES

if TYPE_CHECKING:
    from pathlib import Path

    from face3d_trt.records import Precision

DEFAULT = "default"
# An output, or a group of coefficients; "texture" alone is the output, "coeffs.texture" the 80 coefficients.
KEYS = (COEFFS, *(f"{COEFFS}.{group}" for group in GROUPS), VERTEX, TEXTURE)

Share = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Cosine = Annotated[float, Field(ge=-1, le=1)]


def limit_key(output: str, group: str | None) -> str:
    """`coeffs`, `angle` → `coeffs.angle`; `vertex`, None → `vertex`."""
    return output if group is None else f"{output}.{group}"


class MeaningLimit(BaseModel):
    """Limits of one measure of `meaning.py`, in its unit; the side on which values are worse is the measure's.

    Attributes:
        median: What half of the pictures have to keep; None: not gated.
        p95: What 95 % of the pictures have to keep, where there are 20 or more; None: not gated.
        worst: What every picture has to keep; None: not gated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    median: FiniteFloat | None = None
    p95: FiniteFloat | None = None
    worst: FiniteFloat | None = None


class PrecisionLimits(BaseModel):
    """Limits of one precision: by key (see KEYS), or `default` for every key that is not named.

    Attributes:
        relative: Largest root-mean-square error of a batch, as a share of the variation between pictures.
        row: Largest error of a single row of a batch, as a share of the same variation.
        cosine: Smallest cosine between candidate and reference over a batch.
        meaning: By measure (see MEASURES); what is not named is shown and not gated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    relative: dict[str, Share]
    row: dict[str, Share]
    cosine: dict[str, Cosine]
    meaning: dict[str, MeaningLimit]

    @field_validator("relative", "row", "cosine")
    @classmethod
    def _known_keys(cls, value: dict[str, float]) -> dict[str, float]:
        if DEFAULT not in value:
            raise ValueError(f"the key {DEFAULT!r} is missing")
        if unknown := sorted(set(value) - {DEFAULT, *KEYS}):
            raise ValueError(f"unknown keys {unknown}; known are {DEFAULT!r} and {', '.join(KEYS)}")
        return value

    @field_validator("meaning")
    @classmethod
    def _known_measures(cls, value: dict[str, MeaningLimit]) -> dict[str, MeaningLimit]:
        if unknown := sorted(set(value) - set(MEASURES)):
            raise ValueError(f"unknown measures {unknown}; known are {', '.join(MEASURES)}")
        for name, limit in value.items():
            if MEASURES[name].better == "low" and any((each or 0) < 0 for each in limit.model_dump().values()):
                raise ValueError(f"{name} is an error, which is never below 0")
        return value

    def of(self, measure: Literal["relative", "row", "cosine"], key: str) -> float:
        """The limit of `measure` for an output or coefficient group."""
        values: dict[str, float] = getattr(self, measure)
        return values.get(key, values[DEFAULT])


class Limits(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2]
    fp32: PrecisionLimits
    fp16: PrecisionLimits
    int8: PrecisionLimits

    def of(self, precision: Precision) -> PrecisionLimits:
        """The limits of one precision."""
        limits: PrecisionLimits = getattr(self, precision)
        return limits


def load_limits(path: Path | None = None) -> Limits:
    """Read limits from `path`, or the ones that ship with the package.

    Raises:
        UsageError: The file is missing, or is not such a file; the message names every wrong entry.
    """
    source = resources.files(__package__).joinpath("limits.json") if path is None else path
    try:
        return Limits.model_validate_json(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the limits file {path} cannot be read: {error}", allowed="a JSON file like limits.json"
        ) from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise UsageError(
            f"the limits file {path} is not valid: {wrong}",
            allowed="schema_version 2, and fp32, fp16 and int8, each with relative, row and cosine "
            f"by 'default', {', '.join(KEYS)}, and with meaning by measure, each with median, p95 and worst",
        ) from error
