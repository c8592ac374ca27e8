"""What `tests/test_docs.py` needs to hold the documentation to the code.

`python -m tests.documentation` writes the reference parts of the pages anew; what stands around them is written
by hand.
"""
