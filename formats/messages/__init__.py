"""Messages about names, calls and files, and the errors themselves."""
