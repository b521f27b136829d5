"""`python -m hyp_submit`."""

from hyp_submit.cli import main

if __name__ == "__main__":
    main()
