"""When a TCP connection to an engine is dead, and how the system finds out without a word of the engine's.

An idle flow that a machine in between has dropped, or a peer without power, closes no connection: it has to be probed. It
must not know what is sent there.
"""

DEAD_SECONDS = 30
"""A peer that acknowledges nothing for so long is dead. One that lives does, however long its engine is silent."""
PROBE_AFTER_SECONDS = 10
PROBE_PERIOD_SECONDS = 5
PROBES = (DEAD_SECONDS - PROBE_AFTER_SECONDS) // PROBE_PERIOD_SECONDS
