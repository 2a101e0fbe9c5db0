"""Benchmarks: figures with their spread, and ratios to the systems that ours replace.

``python -m benchmarks.alfworld --help``
"""
