"""Pictures of programs and of what they do: SVG, which notebooks and the page of `treadle inspect` show."""
