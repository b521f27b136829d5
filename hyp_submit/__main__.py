"""`hyp-submit` and `python -m hyp_submit`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it loads is Ctrl-C like any other."""
    if sys.argv[1:] == ["--version"]:  # scripts ask for it all the time: not worth a parser
        from hyp_submit import __version__  # noqa: PLC0415

        print(f"hyp-submit {__version__}")
        return
    try:
        from hyp_submit.cli import main as run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
