"""In the place of SGLang's kernels, which are for GPUs."""

import sys

from absent_package import stand_in

__version__ = "0.0.0"

stand_in(sys.modules[__name__])
