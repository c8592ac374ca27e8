"""What a script said and left: its outcome, why it was refused, and the project files that it may read and leave."""
