"""A Ray cluster whose own traffic is encrypted (RAY_USE_TLS): ours works in it, and is refused without certificates."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import Raylets, needs_ray
from tests.cluster.test_ray import RayHarness
from tests.executors.conformance.trials import Behaviour, Trial
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.errors import ExecutorError
from springtide.executors.hosts.network_routes import find_route_to
from springtide.executors.protocol import Faulted, Finished
from springtide.executors.ray import ray_executor
from springtide.executors.ray.ray_executor import RayExecutor

pytestmark = [
    needs_ray,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl"),
]


def make_certificates(folder: Path, *addresses: str) -> dict[str, str]:
    """An authority and a certificate of it for these addresses, as the variables that Ray reads."""
    key, certificate, request = (str(folder / name) for name in ("ca.key", "ca.crt", "host.csr"))
    names = folder / "names"
    names.write_text(f"subjectAltName={','.join(f'IP:{one}' for one in addresses)},DNS:localhost\n")
    host_key, host_certificate = str(folder / "host.key"), str(folder / "host.crt")
    fresh, made = ["-newkey", "rsa:2048", "-nodes"], ["-CAcreateserial", "-days", "2"]
    made += ["-extfile", str(names), "-out", host_certificate]
    for words in (
        ["req", "-x509", *fresh, "-keyout", key, "-out", certificate, "-subj", "/CN=authority", "-days", "2"],
        ["req", *fresh, "-keyout", host_key, "-out", request, "-subj", "/CN=host"],
        ["x509", "-req", "-in", request, "-CA", certificate, "-CAkey", key, *made],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": host_certificate,
        "RAY_TLS_SERVER_KEY": host_key,
        "RAY_TLS_CA_CERT": certificate,
    }


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    own = find_route_to("192.0.2.1").address  # where Ray says its nodes are; nothing is sent there
    return make_certificates(tmp_path_factory.mktemp("certificates"), "127.0.0.1", own)


@pytest.fixture(scope="module")
def raylets(variables: Mapping[str, str]) -> Iterator[Raylets]:
    with Raylets((1, 1), variables=variables) as made:
        yield made


def test_a_job_trains_on_hosts_of_an_encrypted_ray(
    raylets: Raylets, variables: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    executor = RayExecutor(tmp_path / "home", raylets.address)
    try:
        harness = RayHarness(executor, tmp_path)
        wait_until(lambda: len(harness.devices) == 2, lambda: f"{executor.keeper.hosts}")
        trial = Trial(harness, "encrypted")
        trial.start(Behaviour(steps=60, step_s=0.02), devices=harness.devices)
        trial.await_event(Finished)
        assert not trial.of(Faulted)
    finally:
        executor.shutdown()


def test_without_certificates_the_cluster_is_not_waited_for_without_end(
    raylets: Raylets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "CONNECT_S", 20.0)
    with pytest.raises(ExecutorError, match="RAY_USE_TLS"):
        RayExecutor(tmp_path / "home", raylets.address)
