"""One file per verb. This package may import anything of ours; nothing of ours imports it."""
