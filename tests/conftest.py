"""One profile for all properties: no deadline, because how long an example takes is the machine's business."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
