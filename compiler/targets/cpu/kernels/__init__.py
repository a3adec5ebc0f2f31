"""What a kernel is, the table of templates, and the templates of no other family."""
