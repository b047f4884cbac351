"""Mechanisms, each with its theorem, and the account of what they spend. Knows no trees."""
