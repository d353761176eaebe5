"""What holds for every test: the Hub is never asked, and hypothesis has no deadline, whatever the machine."""

import os

from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported; child processes have it from here

settings.register_profile("atrl", deadline=None)
settings.load_profile("atrl")
