"""`python -m sightglass` is the command `sightglass`."""

from sightglass.cli import main

if __name__ == "__main__":
    main(prog_name="sightglass")
