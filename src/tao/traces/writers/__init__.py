"""One writer a format: sessions in, one file out, the same bytes each time; returns the number of sessions.

A writer must not know how its sessions were read.
"""
