"""Schedulers of published research that keep no package of their own, each argued in its head."""
