"""What scripts under a Trainer print, for a test to compare."""

import hashlib
import json
from typing import Any


def print_result(trainer: Any, predictions: Any) -> None:
    """The weights and the predictions as digests, the steps taken, and the logs but for times."""
    if not trainer.is_world_process_zero():
        return
    weights = b"".join(one.detach().float().numpy().tobytes() for one in trainer.model.parameters())
    untimed = [
        {name: value for name, value in row.items() if not name.endswith(("runtime", "per_second"))}
        for row in trainer.state.log_history
    ]
    signs = [hashlib.sha256(one).hexdigest() for one in (weights, predictions.tobytes())]
    print("RESULT " + json.dumps([*signs, trainer.state.global_step, untimed]), flush=True)
