"""The proof kit of `springtide doctor --prove`: what is tried on a machine's devices, and the script that it trains."""
