"""The proof kit: what is planned for a number of devices, and all of it on the CPU of this machine."""

import json
from pathlib import Path

import pytest

from springtide.cli.app import main
from springtide.verification.proofs.prove import MachineProof, ProvedItem, plan_proofs

ENVIRONMENT = {"gpus": [], "torch": "2"}


@pytest.mark.parametrize(
    ("processes", "verified", "planned"),
    [
        (1, ["1"], ["verify", "kill", "mixed precision", "level D2", "compile"]),
        (2, ["2", "1"], ["verify", "rescale", "kill", "mixed precision", "level D2", "compile"]),
        (8, ["4", "2", "1"], ["verify", "rescale", "kill", "mixed precision", "level D2", "compile"]),
    ],
)
def test_no_plan_needs_more_devices_than_there_are(processes: int, verified: list[str], planned: list[str]) -> None:
    proofs = plan_proofs(processes)
    assert [proof.name for proof in proofs] == planned
    assert [case.name for case in proofs[0].cases] == verified
    mappings = [mapping for proof in proofs for case in proof.cases for _, mapping in case.mappings]
    assert max(map(len, mappings)) <= processes and {sum(mapping) for mapping in mappings} == {4}


def test_what_was_not_tried_is_not_proved() -> None:
    done, left = ProvedItem("verify", True, 1.0, "identical"), ProvedItem("compile", None, 0.0, "not tried")
    assert MachineProof(ENVIRONMENT, (done,)).ok
    document = MachineProof(ENVIRONMENT, (done, left)).to_json()
    assert (document["ok"], document["device"]) == (False, "cpu")
    assert [check["ok"] for check in document["checks"]] == [True, None]


def test_a_file_that_cannot_be_written_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--prove", "no/where.json"])
    assert end.value.code == 2
    assert "cannot write no/where.json" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_this_machine_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--prove", "proof.json"])
    assert not end.value.code
    document = json.loads((tmp_path / "proof.json").read_text())
    checks = {check["name"]: check["ok"] for check in document["checks"]}
    assert {"verify", "rescale", "kill", "mixed precision", "level D2", "compile"} <= set(checks)
    assert [name for name, ok in checks.items() if not ok] == []
    assert "please send it back" in capsys.readouterr().out
