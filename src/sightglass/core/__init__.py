"""What every part shares: records, values, errors, bytes, time. Imports nothing of ours."""
