"""What a request passes before any route: a seat, the guard, and who it is from; and how it is refused there."""
