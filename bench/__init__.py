"""Benchmarks: side by side in one run, reported as ratios, because machines drift and ratios do not."""
