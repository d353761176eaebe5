"""What holds for every test: hypothesis has no deadline, for how fast a machine is says nothing about the code."""

from hypothesis import settings

settings.register_profile("atrl", deadline=None)
settings.load_profile("atrl")
