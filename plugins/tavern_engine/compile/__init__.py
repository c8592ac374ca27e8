"""From a workflow's document to what can be carried out: checked kinds, the plan, and values bound to it."""
