"""Boosted trees that predict together with a network, and how much of either counts."""
