"""Programs that users write in Python: expressions over variables, operators of their own."""
