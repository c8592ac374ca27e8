"""A node that throws dice, its face on the canvas, and a button that resets any value. The page's part is in
`frontend/`, and built into `web/`."""
