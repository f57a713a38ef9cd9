"""Unit tests are quick, but a busy machine must not fail them: hypothesis keeps no clock."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
