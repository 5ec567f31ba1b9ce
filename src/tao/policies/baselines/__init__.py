"""What TAO is compared with: request routers and session schedulers of the field, rebuilt from their descriptions.

Each is a policy like any other: it runs live and in simulations. `catalogue` names them; the documentation has a page
for each that says what it does, where that comes from, and what differs here. No I/O.
"""

from tao.policies.baselines.catalogue import BASELINES
from tao.policies.baselines.per_turn import PerTurnPolicy, Router

__all__ = ["BASELINES", "PerTurnPolicy", "Router"]
