"""In the place of torchvision, which text models do not need."""

import sys

from absent_package import stand_in

__version__ = "0.0.0"

stand_in(sys.modules[__name__])
