"""Kernel texts to native code, in worker processes and through the cache."""
