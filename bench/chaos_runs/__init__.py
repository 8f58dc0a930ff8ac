"""Swarms of real processes to which faults happen that are drawn from a seed; `bench/chaos` runs them."""
