"""The basic nodes, as a plugin: `plugin.yaml` names the folder that they are in, so there are no hooks here."""
