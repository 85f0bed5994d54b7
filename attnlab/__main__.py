"""`python -m attnlab`: see attnlab.cli."""

import sys

if __name__ == "__main__":
    try:
        from attnlab.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # while modules load; later ones are main's
        sys.exit(130)
