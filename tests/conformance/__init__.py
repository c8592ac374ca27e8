"""What a workflow is, as vectors that the rules in Python and the studio's editor both have to agree with."""
