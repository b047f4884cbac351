"""The report: one HTML file that shows a tree, what it cost, and what is and is not protected.

It is made from a model alone, trained or loaded, and holds released numbers only. The page asks nothing of any
network. Imports `classifier`; only the command line imports it.
"""

from hedgerow.report._page import report_html, write_report

__all__ = ["report_html", "write_report"]
