"""The cache: a result is computed once, a broken one again, and a key depends on every part."""

from pathlib import Path

from experiments.caches import Cache, make_key


def test_a_result_is_computed_once(tmp_path: Path) -> None:
    cache, calls = Cache(tmp_path / "cache"), []

    def compute() -> tuple[int, int]:
        calls.append(1)
        return 1, 2

    assert cache.remember(["a", 1], compute) == [1, 2]
    assert cache.remember(["a", 1], compute) == [1, 2]
    assert len(calls) == 1
    cache.remember(["a", 2], compute)
    assert len(calls) == 2


def test_what_is_cut_off_counts_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep("key", {"a": 1})
    assert cache.find("key") == {"a": 1}
    (tmp_path / "key.json").write_text('{"a": ')
    assert cache.find("key") is None


def test_equal_parts_make_equal_keys() -> None:
    assert make_key({"a": 1, "b": Path("x")}) == make_key({"b": Path("x"), "a": 1})
    assert make_key([1]) != make_key([2])
