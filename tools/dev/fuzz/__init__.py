"""Fuzzers, and what they are made of."""
