"""The query language: queries as plain data, and the one evaluator that computes them."""
