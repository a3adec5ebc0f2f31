"""The workshop: what Treadle's developers run. It is not in the wheel."""
