"""What a script may have: the operator's policy, what is asked for, and the launch that follows from both."""
