"""What all other folders use: records, values, columns, errors, bytes, clocks, threads. It imports none of them."""
