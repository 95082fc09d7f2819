"""A receipt put to the proof: a run, its receipt, and the same or another run again."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.verification.test_verify import HONEST

from springtide.cli.app import main
from springtide.core.receipt_format import digest_receipt
from springtide.errors import InputError
from springtide.training.settings import Settings
from springtide.training.state.state_chain import read_chain
from springtide.verification.receipt_check import choose_segment, name_place
from springtide.verification.scripted_jobs import Host, ScriptedJob, follow


def write_receipt(folder: Path, chain: list[dict[str, Any]]) -> Path:
    told = {
        "schema": 1,
        "job": {"id": "a", "name": "a", "run": ["python", "train.py"]},
        "code_archive": "",
        "chain": chain,
        "final": {"step": chain[-1]["step"], "weights_sha256": None},
    }
    file = folder / "receipt.json"
    file.write_text(json.dumps({**told, "digest": digest_receipt(told), "seal": {}}))
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, host: Host) -> Path:
    """A folder with a script, its checkpoints, and the receipt of its run on two processes."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(HONEST)
    settings = Settings(
        chain=folder.parent / f"{folder.name}-chain.jsonl",
        chain_at="1,2,3,4,5,6",
        checkpoint_dir=folder.parent / f"{folder.name}-saved",
        checkpoint_every_steps=2,
        checkpoint_keep=9,
    )
    follow(ScriptedJob(folder / "train.py", (), folder, settings), [(0, (2, 2))], host=host)
    assert settings.chain is not None
    write_receipt(folder, read_chain(settings.chain))
    return folder


def verify(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as end:
        main(["verify", "--receipt", "receipt.json", *words])
    return int(end.value.code or 0)


def test_a_receipt_holds_on_another_number_of_processes(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(trained, monkeypatch, "--sizes", "1", "--to", "4") == 0
    assert "holds: 4 digests from step 1 to 4 compared, trained again from step 0" in capsys.readouterr().out


def test_a_segment_is_trained_from_a_checkpoint_that_is_checked_too(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = trained.parent / f"{trained.name}-saved"
    words = ["--from", "5", "--checkpoints", str(saved), "-o", "json"]
    assert verify(trained, monkeypatch, *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["from_step"] in (2, 4), "a checkpoint is left out while another is being written"
    assert document["compared_steps"] == [document["from_step"], 5, 6]


def test_other_code_and_the_first_step_that_differs_are_named(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = "        for group in optimizer.param_groups: group['lr'] = 1e-3 if run.position.step < 2 else 2e-3\n"
    (tmp_path / "train.py").write_text(
        HONEST.replace("        optimizer.step()\n", late + "        optimizer.step()\n")
    )
    (tmp_path / "receipt.json").write_text((trained / "receipt.json").read_text())
    assert verify(tmp_path, monkeypatch, "--to", "5") == 1
    shown = capsys.readouterr().out
    assert "different code: " in shown and "first difference: the state after step 3" in shown
    assert "does NOT hold" in shown


def test_what_cannot_be_trained_again_is_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "receipt.json").write_text((trained / "receipt.json").read_text())
    assert verify(tmp_path, monkeypatch) == 2
    assert "train.py, which is not in this folder" in capsys.readouterr().err
    receipt = json.loads((trained / "receipt.json").read_text())
    with pytest.raises(InputError, match="no digest of a step from 9 to 6; it has some from 1 to 6"):
        choose_segment(receipt, 9, None, None)
    with pytest.raises(InputError, match="no checkpoint of a step up to 1"):
        choose_segment(receipt, 1, None, trained.parent / f"{trained.name}-saved")


def test_where_the_first_digest_is_later_than_asked_for_it_is_trained_to_that_one(trained: Path) -> None:
    receipt = json.loads((trained / "receipt.json").read_text())
    receipt["chain"] = [line for line in receipt["chain"] if line.get("step", 5) >= 5]  # as on a fast machine
    assert choose_segment(receipt, 0, 2, None).last == 5
    assert choose_segment(receipt, 0, 6, None).last == 6


def test_what_it_was_trained_on_is_told_in_words_that_a_server_takes() -> None:
    assert name_place("1", "cpu") == "1 process, cpu"
    assert name_place("3+1", "NVIDIA\u00ae A100;\n<b>80GB") == "3+1 processes, NVIDIA A100 b 80GB"
    assert len(name_place("2", "x" * 999)) == 200
