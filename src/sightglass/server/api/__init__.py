"""The endpoints, by family; each module has a table `ROUTES`."""
