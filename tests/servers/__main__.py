"""python -m tests.servers fetch: downloads what the servers need into the cache, so that tests start at once."""

import sys

from . import kafka, postgres, toxiproxy
from .common import ServerMissing


def main():
    if sys.argv[1:] != ["fetch"]:
        sys.exit("usage: python -m tests.servers fetch")
    missing = False
    for fetch in (postgres.fetch_18, kafka.fetch, toxiproxy.fetch):
        try:
            fetch()
        except ServerMissing as error:
            print(error, file=sys.stderr)
            missing = True
    sys.exit(1 if missing else 0)


main()
