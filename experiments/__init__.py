"""Each figure one function; every claim with its number and command."""
