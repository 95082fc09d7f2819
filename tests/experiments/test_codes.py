"""The version of the code: it follows imports, and knows one policy from another."""

from experiments.codes import digest_code, find_file, find_imports


def test_imports_are_followed_and_policies_told_apart() -> None:
    assert "springtide.policies.common.gangs" in find_imports("springtide.policies.fifo")
    fifo, srtf = (digest_code("springtide.simulator.front", f"springtide.policies.{name}") for name in ("fifo", "srtf"))
    assert fifo != srtf
    assert fifo == digest_code("springtide.simulator.front", "springtide.policies.fifo")


def test_only_our_own_modules_are_found() -> None:
    assert find_file("springtide.core.jobs") is not None
    assert find_file("springtide.core") is not None
    assert find_file("springtide.nothing") is None
