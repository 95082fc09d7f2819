"""Tables: what is measured is kept out of the file that must be the same in every run."""

from experiments.tables import make_table, write_csv, write_timing

TABLE = make_table(("policy", "met", "cpu_s"), [("edf", 3, 0.25), ("fifo", None, 1.0)], measured=["cpu_s"])


def test_measured_columns_go_to_a_file_of_their_own() -> None:
    assert write_csv(TABLE) == "policy,met\nedf,3\nfifo,\n"
    assert write_timing(TABLE) == "policy,cpu_s\nedf,0.25\nfifo,1\n"
    assert write_timing(make_table(("a",), [(1,)])) is None


def test_rows_and_columns_by_name() -> None:
    assert TABLE.column("met") == [3, None]
    assert next(TABLE.records()) == {"policy": "edf", "met": 3, "cpu_s": 0.25}
