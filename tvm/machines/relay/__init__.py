"""Executables of the Relay VM, as programs of the Relax VM."""
