"""What decides and what follows from it: the reconciler, its context, and every effect of a decision."""
