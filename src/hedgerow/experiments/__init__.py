"""Experiments on public data: how accurate the private trees are. Seeded noise throughout, so not private."""
