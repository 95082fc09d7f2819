"""Profile tables: what is read, what is left out, and what is said when something is missing."""

from pathlib import Path

import pytest

from springtide.errors import ProfileError
from springtide.throughput.tables.profiles import read_profiles, read_table

HEADER = "global_batch_size,1,2,4,8\n"


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    path.write_text(text)
    return path


def test_reads_each_batch_as_a_curve(tmp_path: Path) -> None:
    path = write(tmp_path, "net", HEADER + "64,1,1.5,2,1.8\n128,0.5,0.9,1.4,2\n")
    curves = read_table(path)
    assert set(curves) == {64, 128}
    assert curves[64].shares == (1, 2, 4, 8)
    assert curves[64].rates == (1.0, 1.5, 2.0, 1.8)
    assert curves[64].peak == 4


@pytest.mark.parametrize("cell", ["nan", "", "0", "0.0", "NaN", " "])
def test_unavailable_cells_are_left_out(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, "net", HEADER + f"64,1,{cell},2,3\n")
    assert read_table(path)[64].shares == (1, 4, 8)


def test_rows_without_any_speed_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "net", HEADER + "64,1,2,3,4\n128,nan,nan,0,\n")
    assert set(read_table(path)) == {64}


def test_a_share_needs_a_sample_for_each_device(tmp_path: Path) -> None:
    path = write(tmp_path, "net", HEADER + "4,1,2,3,4\n")
    assert read_table(path)[4].shares == (1, 2, 4)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "header"),
        ("batch,1,2\n64,1,2\n", "global_batch_size"),
        ("global_batch_size\n64\n", "device counts"),
        ("global_batch_size,2,1\n64,1,2\n", "ascending"),
        (HEADER + "64,1,2\n", "line 2: 3 cells where the header has 5"),
        (HEADER + "x,1,2,3,4\n", "global batch 'x'"),
        (HEADER + "0,1,2,3,4\n", "global batch '0'"),
        (HEADER + "64,1,fast,3,4\n", "speed 'fast'"),
        (HEADER + "64,1,-2,3,4\n", "speed '-2'"),
        (HEADER + "64,1,inf,3,4\n", "speed 'inf'"),
    ],
)
def test_a_bad_table_names_file_and_rule(tmp_path: Path, text: str, part: str) -> None:
    path = write(tmp_path, "net", text)
    with pytest.raises(ProfileError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert part in str(caught.value)


def test_a_folder_may_hold_one_per_type_or_be_one(tmp_path: Path) -> None:
    write(tmp_path / "all" / "A100", "net", HEADER + "64,1,2,3,4\n")
    nested = read_profiles(tmp_path / "all", ("a100",))
    plain = read_profiles(tmp_path / "all" / "A100", ("a100",))
    assert nested.curve("net", 64) == plain.curve("net", 64)


def test_missing_model_batch_and_type_say_what_there_is(tmp_path: Path) -> None:
    write(tmp_path / "a100", "net", HEADER + "64,1,2,3,4\n")
    profiles = read_profiles(tmp_path, ("a100",))
    with pytest.raises(ProfileError, match=r"'other' has no profile.*profiles of net"):
        profiles.curve("other", 64)
    with pytest.raises(ProfileError, match=r"batch 32.*one for 64"):
        profiles.curve("net", 32)
    with pytest.raises(ProfileError, match=r"'h100'; there are: a100"):
        read_profiles(tmp_path, ("h100",))
    with pytest.raises(ProfileError, match="is not a folder"):
        read_profiles(tmp_path / "none", ("a100",))
    with pytest.raises(ProfileError, match=r"packaged profiles hold nothing for device type 'abacus'; .*a100, t4"):
        read_profiles(None, ("abacus",))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a100").mkdir()
    with pytest.raises(ProfileError, match="hold no table"):
        read_profiles(tmp_path, ("a100",))


def test_several_types_run_as_the_slowest(tmp_path: Path) -> None:
    write(tmp_path / "a100", "net", HEADER + "64,4,6,8,9\n")
    write(tmp_path / "t4", "net", HEADER + "64,1,2,nan,10\n")
    curve = read_profiles(tmp_path, ("a100", "t4")).curve("net", 64)
    assert dict(zip(curve.shares, curve.rates, strict=True)) == {1: 1.0, 2: 2.0, 8: 9.0}


def test_packaged_profiles_cover_the_models_of_the_public_traces() -> None:
    a100 = {model for model, _ in read_profiles(None, ("a100",)).curves}
    t4 = {model for model, _ in read_profiles(None, ("t4",)).curves}
    assert a100 == {"bert", "deepspeech2", "gpt2", "inception3", "resnet50", "vgg16"}
    assert t4 == {"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}
