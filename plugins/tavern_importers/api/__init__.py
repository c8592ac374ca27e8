"""What others may import of this plugin: kinds of files with their marks, the hook for further ones, what an importer
is given and answers, and the readers of such files."""
