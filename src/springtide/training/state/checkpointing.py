"""When a run's state goes to disk and comes back: at step boundaries, at the end, and on resume.

Process 0 writes and reads for all; the others only share their contexts. How a checkpoint looks is in `checkpoints`,
what is in it in `run_state`.
"""

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from springtide.errors import CheckpointError
from springtide.training.determinism import levels
from springtide.training.group.agreement import Action
from springtide.training.group.groups import send_tree
from springtide.training.settings import Settings
from springtide.training.state import chaining, run_state
from springtide.training.state.checkpoints import Checkpoints, Facts
from springtide.training.state.memory_copies import load_newer

if TYPE_CHECKING:
    from springtide.training.elastic_run import ElasticRun

#: In a state on its way to the other processes: that it is on no disk.
FROM_MEMORY = "from_memory"
#: What follows when a checkpoint could not be written: between steps, and at the end of a process that was told to go.
GOES_ON = "training goes on, the next one is tried in its turn"
GOES = "the process ends as it was told, and the job goes on later from the checkpoint before"
#: Seconds before each next try to write the result, under a supervisor; half an hour in all.
RESULT_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, *[30.0] * 60)


def open_checkpoints(settings: Settings) -> Checkpoints | None:
    """The job's checkpoints, if it keeps any: in a folder, or below a URL with receipts in that folder."""
    if settings.checkpoint_dir is None:
        return None
    if settings.checkpoint_url is None:
        return Checkpoints(settings.checkpoint_dir, settings.checkpoint_keep, settings.checkpoint_generation)
    from springtide.objects.object_store import ObjectStore  # not before a job asks for it
    from springtide.training.state.remote_checkpoints import RemoteCheckpoints

    store = ObjectStore(settings.checkpoint_url)
    return RemoteCheckpoints(store, settings.checkpoint_dir, settings.checkpoint_keep, settings.checkpoint_generation)


def find_facts(run: "ElasticRun") -> Facts:
    """What a checkpoint of this run must agree with; to be asked when the code has just been loaded."""
    data = run.loader.sampling
    return Facts(
        logical_workers=run.logical_workers,
        seed=run.seed,
        samples=data.samples,
        batch_size=data.batch_size,
        accumulate=data.accumulate,
        shuffle=data.shuffle,
        drop_last=data.drop_last,
        level=run.level,
        threads=torch.get_num_threads(),
        code=fingerprint_code(),
    )


def choose_copy(run: "ElasticRun", action: Action) -> Action:
    """Whether rank 0 has the state copied into memory at this boundary; of what goes to disk anyway no copy is made."""
    is_due = run.checkpoints is not None and run.sharding is None and run.copies.is_due(time.monotonic())
    return Action.COPY if is_due and not action & (Action.CHECKPOINT | Action.TERMINATE) else Action.NOTHING


def act(run: "ElasticRun", action: Action) -> None:
    """Save what was agreed on."""
    if run.checkpoints is not None and action & (Action.CHECKPOINT | Action.TERMINATE):
        save(run, wait=Action.TERMINATE in action)
    if Action.COPY in action:
        run.copies.keep(run)


def save(run: "ElasticRun", wait: bool) -> None:
    """Write a checkpoint of this boundary, unless it was; training waits for the copy in memory, or for all of it."""
    assert run.checkpoints is not None
    finish_writing(run)
    if run.position.step == run.saved_step:
        return
    run.saved_step = run.position.step
    contexts = run_state.share_contexts(run)
    run.agreement.saved_s = time.monotonic()
    chaining.link(run)
    if not run.is_main:
        if run.sharding is not None:
            run_state.capture(run, contexts)
        return
    run.tracking.sync()
    run.checkpoints.save(run_state.capture(run, contexts), run.position.step, run.facts, urgent=wait)
    if wait:
        finish_writing(run, GOES)


def finish_writing(run: "ElasticRun", otherwise: str = GOES_ON) -> None:
    """Wait for what is being written, and report it.

    A checkpoint that could not be written (a full disk) is said, with what follows from that; nothing fails by it.
    """
    assert run.checkpoints is not None
    try:
        step = run.checkpoints.wait()
    except CheckpointError as error:
        print(f"springtide: warning: {error}; {otherwise}", file=sys.stderr)
        run.channel.send("checkpoint_failing", step=run.position.step, reason=str(error))
    else:
        report_saved(run, step)


def is_writing(run: "ElasticRun") -> bool:
    """Whether a checkpoint is being written; one that has just ended is reported."""
    if run.checkpoints is None:
        return False
    if run.checkpoints.is_busy:
        tell_trouble(run, run.checkpoints)
        return True
    finish_writing(run)
    return False


def tell_trouble(run: "ElasticRun", checkpoints: Checkpoints) -> None:
    """Say, once, that what is being written is not written yet; training goes on meanwhile."""
    trouble, checkpoints.trouble = checkpoints.trouble, ""
    if trouble:
        print(f"springtide: warning: {trouble}; it is tried again, and training goes on", file=sys.stderr)
        run.channel.send("checkpoint_failing", step=run.position.step, reason=trouble)


def report_saved(run: "ElasticRun", step: int | None) -> None:
    """Say that the checkpoint of a step is on disk."""
    if step is not None:
        run.channel.send("checkpointed", step=step)


def save_result(run: "ElasticRun") -> None:
    """Write the last checkpoint. It is the result: what cannot be written is written again, not trained again.

    After `RESULT_PAUSES_S` the run gives up, says so, and fails.
    """
    assert run.checkpoints is not None
    if run.position.step != run.saved_step:
        save(run, wait=False)
    for pause_s in (*RESULT_PAUSES_S, None):
        try:
            report_saved(run, run.checkpoints.wait())
        except CheckpointError as error:
            can_retry = run.channel.is_open and isinstance(error.__cause__, OSError)
            is_last = pause_s is None or not can_retry
            run.channel.send("checkpoint_failing", step=run.position.step, reason=str(error), is_result=is_last)
            if pause_s is None or is_last:
                raise
            wait_to_save(run, error, pause_s)
        else:
            run.copies.forget()
            return


def wait_to_save(run: "ElasticRun", error: CheckpointError, pause_s: float) -> None:
    """Wait a while and begin to write the result again, from the copy in memory."""
    assert run.checkpoints is not None
    print(f"springtide: warning: {error}; it is the result, and is tried again in {pause_s:g} s", file=sys.stderr)
    with run.busy("waiting to save the result"):
        time.sleep(pause_s)
    run.checkpoints.write_again()


def resume(run: "ElasticRun") -> None:
    """Continue from the newest whole checkpoint, or a newer copy in memory; process 0 reads it for all.

    Another one may write later, and has to be of the same generation then.
    """
    assert run.checkpoints is not None
    saved = load(run) if run.is_main else None
    if run.group is not None:
        found = saved, run.checkpoints.generation
        saved, run.checkpoints.generation = send_tree(run.group, found, 0, run.device)
    if saved is None:
        return
    if "error" in saved:
        raise CheckpointError(saved["error"])
    is_saved = not saved.pop(FROM_MEMORY, False)
    run.adopt_early(saved)
    if is_saved:
        run.saved_step = run.position.step
    else:  # another loss may take the copy, too
        run.agreement.wants_checkpoint = True


def load(run: "ElasticRun") -> dict[str, Any] | None:
    """The newest whole checkpoint's state, or the error that all processes must hear of."""
    assert run.checkpoints is not None
    try:
        run.checkpoints.clean()
        names = run.checkpoints.catch_up()
        newest = names[0].step if names else 0
        copy = load_newer(run.settings, max(newest, run.settings.checkpoint_saved), run.facts)
        if copy is not None:
            run.channel.send("resumed", step=copy.step, passed_over=[])
            return {**copy.state, FROM_MEMORY: True}
        saved = run.checkpoints.load(run.facts, run.settings.allow_code_change)
    except (CheckpointError, OSError) as error:
        return {"error": str(error)}
    if saved is None:
        return find_loss(run.checkpoints.place, run.settings.checkpoint_saved)
    if saved.torch != torch.__version__:
        run.channel.warn(
            f"resumed from a checkpoint that torch {saved.torch} wrote, with torch {torch.__version__}: from step "
            f"{saved.step} on the bits may be others than those of an undisturbed run"
        )
    here, there = levels.name_kernels(run.level, run.device), saved.state.get("kernels", "")
    if there and here != there:  # earlier versions saved none
        run.channel.warn(
            f"resumed on {here} from a checkpoint that was written on {there}: from step {saved.step} on the bits may "
            "be others than those of an undisturbed run; determinism: D2 has the same on both"
        )
    for problem in saved.passed_over:
        print(f"springtide: checkpoint passed over: {problem}; resumed from step {saved.step}", file=sys.stderr)
    run.channel.send("resumed", step=saved.step, passed_over=list(saved.passed_over))
    return saved.state


def find_loss(place: str, saved_step: int) -> dict[str, Any] | None:
    """The error of a job that was saved before and finds nothing: it may not begin anew as if it had never run."""
    if saved_step <= 0:
        return None
    return {
        "error": f"the checkpoint of step {saved_step} was saved, and there is none in {place} now: this host does not "
        "see the storage it was written to, or it was removed. Bring it back, or start from step 0 with: "
        "springtide submit"
    }


def fingerprint_code() -> str:
    """A hash of the running script and of the modules beside it that it has imported.

    Installed packages are left out: their versions belong to the environment, which the manifest names.
    """
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None or not Path(main).is_file():  # a session, or a script that came by standard input
        return "interactive"
    home = Path(main).resolve().parent
    files = {Path(main).resolve()}
    folders: dict[str, str] = {}  # thousands of modules lie in hundreds of folders, and to resolve a path takes time
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.isabs(file) and not name.startswith("springtide."):
            found = resolve(file, folders)
            files |= {Path(found)} if found.startswith(str(home)) and is_beside(Path(found), home) else set()
    sign = hashlib.sha256()
    for path in sorted(files):
        sign.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes() + b"\0")
    return sign.hexdigest()


def resolve(file: str, folders: dict[str, str]) -> str:
    """A file's path without symbolic links; folders that were resolved are kept."""
    if os.path.islink(file):
        return os.path.realpath(file)
    folder, name = os.path.split(file)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)


def is_beside(path: Path, home: Path) -> bool:
    """Whether a module's file is source of the user's: under the script's folder and not in an environment there."""
    return path.is_relative_to(home) and path.is_file() and path.suffix == ".py" and "site-packages" not in path.parts
