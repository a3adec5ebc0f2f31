"""Text forms of programs: assembly, disassembly, reports."""
