"""Gradients of N logical workers summed over P processes in the order DDP would add them."""
