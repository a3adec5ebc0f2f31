"""Random programs: `walk.py` grows them by the steps of the other modules, `modules.py` puts them together."""
