"""The IR to bytecode: linear code, registers, memory."""
