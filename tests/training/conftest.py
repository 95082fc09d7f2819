"""The fixtures of training tests, for those of verification too."""

from tests.verification.conftest import equality, host

__all__ = ["equality", "host"]
