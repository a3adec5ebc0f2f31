"""What many hosts serve: `simulation.py` simulates them, `queueing.py` has the formulas that it is checked against."""
