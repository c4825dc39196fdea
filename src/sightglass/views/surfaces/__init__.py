"""Where views are drawn: terminal, Matplotlib, plotly, notebook."""
