"""`treadle inspect -o report.html`: one page that shows a program, what a call of it does, and how it differs from others.

`gather.py` measures, `facts.py` says what a program holds, `pictures.py` draws, `page.py` writes the file; `page.js` and
`page.css` are in it as they are.
"""
