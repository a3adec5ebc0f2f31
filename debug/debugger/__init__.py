"""The debugger: a call that stops, goes on, and goes back. `session.py` is what terminals and editors show."""
