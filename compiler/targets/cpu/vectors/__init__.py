"""The vocabulary of kernel texts: vectors, their elementary functions, and the LLVM code of both."""
