"""What several policies share: answers without promises, gangs, and orders by deadline."""
