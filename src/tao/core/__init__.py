"""The pure core: events in, commands out. It decides everything and does nothing.

No clock, no chance, no I/O, no threads: time comes on the events. Read in this order: `events`, `commands`, `phases`,
`transitions` (the life of a session on one page), `ledger`, `state`, then the handlers `arrivals`, `streaming`, `endings`,
`membership`, `deciding`; `ports` states what a policy must answer.
"""

from tao.core.scheduler import Scheduler
from tao.core.settings import SchedulerSettings

__all__ = ["Scheduler", "SchedulerSettings"]
