"""The fixtures of training tests, for those of verification too."""

from tests.verification.conftest import host, laboratory

__all__ = ["host", "laboratory"]
