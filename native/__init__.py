"""Everything that touches Numba, LLVM and the system: intrinsics, translator, loader, the cache of native code, processes."""
