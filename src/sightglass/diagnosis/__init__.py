"""What looks wrong in a run, live or recorded: a table of findings, each a pure judgement with its figures.

`evidence` reads what is judged, `findings` judges it, `diagnose` puts both together.
"""
