"""What the page shows as one HTML file: the page itself, and beside it the answers that a server would give it."""
