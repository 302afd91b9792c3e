"""``python -m offld``: replaces this process with the program."""

import os
import sys

from offld import program


def main() -> None:
    try:
        path = program()
    except FileNotFoundError as missing:
        sys.exit(f"offld: {missing}")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
