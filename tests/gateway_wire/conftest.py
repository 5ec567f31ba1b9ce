"""Time bounds of generated examples say more of a busy machine than of the parsers: linear time has tests of its own."""

from hypothesis import settings

settings.register_profile("wire", deadline=None)
settings.load_profile("wire")
