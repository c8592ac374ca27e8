"""What tests of the page use: a server with its page, and a browser, as plugins' authors have them too."""

from tavern_studio.testing import WAIT, Studio, browsing, not_new, show

__all__ = ["WAIT", "Studio", "browsing", "not_new", "show"]
