"""Everything constant that faces of one model share: bases, triangles, UV map."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from face3d_trt.reconstruct.products import ProductOptions


class FaceDecoder:
    """Made once for a process; safe to use from several threads."""

    def prepare(self, options: ProductOptions) -> None:
        """Compute what all faces of these options share, so that the first face takes no longer than the others."""
        raise NotImplementedError
