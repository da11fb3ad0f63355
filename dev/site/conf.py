"""Sphinx's configuration of the documentation site; dev/site/build copies it next to the pages."""

project = "tsmalloc"
author = "the tsmalloc authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # links to headings, as on code hosts
html_theme = "furo"  # light and dark, phone and desktop; loads nothing from elsewhere
html_title = "tsmalloc"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
# Text that is not code in its language (output next to commands, "...") is shown plain.
suppress_warnings = ["misc.highlighting_failure"]
