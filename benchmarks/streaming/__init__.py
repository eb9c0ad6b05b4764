"""Proofs about streaming that take minutes to hours, each a command; tests run small ones.

python -m benchmarks.streaming --help
"""
