"""The nodes, by subject: one module each. Importing this package alone imports none of them."""
