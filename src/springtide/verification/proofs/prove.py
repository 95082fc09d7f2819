"""Everything about a machine's devices that can be proved by bits in ten minutes, as one document to send back.

Self-checks of each device, then a small training that is repeated, resized, killed, run in mixed precision, at level D2
and compiled, each compared at every step. On a machine without GPUs the same is done on its CPU, and said.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from springtide.core.shared_types import Tell
from springtide.errors import SpringtideError
from springtide.training.group.rosters import spread
from springtide.verification.cases import Case, plan_rescale
from springtide.verification.verify import Proof, VerifiedScript, verify

SCRIPT = Path(__file__).with_name("proof_training.py")
WORKERS, STEPS, KILL_AT = 4, 12, 6
SELF_CHECK_S = 120.0
#: Nothing is begun after this.
BUDGET_S = 540.0
ASK = (
    "import json, torch; from springtide.training.state.state_chain import describe_environment as e; "
    "n = torch.cuda.device_count(); names = [torch.cuda.get_device_name(i) for i in range(n)]; "
    "print(json.dumps({**e(), 'gpus': names, 'cuda': torch.version.cuda}))"
)


@dataclass(frozen=True, slots=True)
class ProvedItem:
    """One thing that was tried: `ok` is None where there was no time left for it."""

    name: str
    ok: bool | None
    seconds: float
    seen: str


@dataclass(frozen=True, slots=True)
class MachineProof:
    """All that was tried on a machine."""

    environment: Mapping[str, Any]
    items: tuple[ProvedItem, ...]

    @property
    def device(self) -> str:
        """The device type that was tried."""
        return "cuda" if self.environment["gpus"] else "cpu"

    @property
    def ok(self) -> bool:
        """Whether all of it was tried, and held."""
        return all(item.ok for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """The document to send back."""
        return {
            "schema": 1,
            "ok": self.ok,
            "device": self.device,
            "environment": dict(self.environment),
            "checks": [asdict(item) for item in self.items],
        }


@dataclass(frozen=True, slots=True)
class ProofPlan:
    """A training to be proved: its level and kind, and the runs that are compared with the reference."""

    name: str
    level: str
    kind: str
    cases: tuple[Case, ...]


def prove(tell: Tell) -> MachineProof:
    """Try everything, one after the other, for as long as there is time."""
    environment = ask_environment()
    gpus = len(environment["gpus"])
    device = "cuda" if gpus else "cpu"
    began_s = time.monotonic()
    items = list(check_devices(device))
    for plan in plan_proofs(gpus or WORKERS):
        if time.monotonic() - began_s > BUDGET_S:
            items.append(ProvedItem(plan.name, None, 0.0, "not tried: the ten minutes were over"))
            continue
        tell(f"{plan.name} ...")
        items.append(try_plan(plan, device, gpus))
        tell(f"{plan.name}: {items[-1].seen}")
    return MachineProof(environment, tuple(items))


def ask_environment() -> dict[str, Any]:
    """What the machine is; asked of a process of its own, so that this one does not wake CUDA."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    environment: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return environment


def check_devices(device: str) -> Iterator[ProvedItem]:
    """The self-checks of level D1 on each device."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "springtide.training.determinism.selfchecks", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SELF_CHECK_S)
    except subprocess.TimeoutExpired:
        yield ProvedItem("self-check", False, SELF_CHECK_S, f"no answer within {SELF_CHECK_S:g} s")
        return
    took_s = time.monotonic() - began_s
    for line in done.stdout.splitlines():
        told = json.loads(line)
        yield ProvedItem(f"self-check {told['check']}", bool(told["ok"]), took_s, str(told["seen"]))
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        yield ProvedItem("self-check", False, took_s, words[-1])


def plan_proofs(processes: int) -> list[ProofPlan]:
    """What is proved on so many processes, one per device; a collective needs a GPU for each."""
    most = min(WORKERS, processes)
    sizes = sorted({most, max(1, most // 2), 1}, reverse=True)
    plain = tuple(Case(str(size), ((0, spread(WORKERS, size)),)) for size in sizes)
    kill = Case("kill 1", ((0, spread(WORKERS, min(2, most))),), (KILL_AT,))
    ends = (plain[0], plain[-1]) if most > 1 else plain
    proofs = [ProofPlan("verify", "D1", "plain", plain)]
    if most > 1:
        rescale = plan_rescale([str(most), "1", str(max(1, most - 1))], WORKERS, STEPS)
        proofs.append(ProofPlan("rescale", "D1", "plain", (rescale,)))
    return [
        *proofs,
        ProofPlan("kill", "D1", "plain", (kill,)),
        ProofPlan("mixed precision", "D1", "amp", ends),
        ProofPlan("level D2", "D2", "plain", ends),
        ProofPlan("compile", "D1", "compile", ends),
    ]


def try_plan(plan: ProofPlan, device: str, gpus: int) -> ProvedItem:
    """Run a plan and say what came of it; an error is told as what was seen."""
    began_s = time.monotonic()
    visible = {f"slot:{slot}": {"CUDA_VISIBLE_DEVICES": str(slot)} for slot in range(gpus)}
    subject = VerifiedScript(SCRIPT, (device, plan.level, plan.kind), WORKERS, STEPS, devices=visible)
    try:
        # Stock DDP with a rank per worker would need as many GPUs as workers, and NCCL's order of sums is its own.
        proof = verify(subject, "self" if gpus else "ddp", lambda steps: plan.cases, lambda line: None)
    except SpringtideError as error:
        return ProvedItem(plan.name, False, time.monotonic() - began_s, str(error))
    return ProvedItem(plan.name, proof.identical, time.monotonic() - began_s, describe(proof))


def describe(proof: Proof) -> str:
    """The outcomes of a proof in a line."""
    return "; ".join(describe_case(proof, number) for number in range(len(proof.outcomes)))


def describe_case(proof: Proof, number: int) -> str:
    """One outcome in words."""
    outcome = proof.outcomes[number]
    resumed = f" (resumed from step {', '.join(map(str, outcome.resumed))})" if outcome.resumed else ""
    if outcome.error is not None:
        return f"{outcome.name}{resumed}: {outcome.error}"
    if outcome.difference is not None:
        return f"{outcome.name}{resumed} differs at step {outcome.difference.step}, {outcome.difference.tensor}"
    return f"{outcome.name}{resumed} identical to {proof.reference} for {outcome.steps} steps"
