"""Tools of other programs: descriptions of HTTP APIs, plugins of VCPToolBox, lists of functions for models. What comes
of them are files that people read and change: folder plugins with script tools, or tool files of the project."""
