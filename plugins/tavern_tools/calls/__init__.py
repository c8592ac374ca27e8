"""One call after another: authorised, limited, carried out, recorded, and its result."""
