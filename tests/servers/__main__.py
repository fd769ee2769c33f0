"""python -m tests.servers fetch: fills the cache with what tests download or build, so that they start at once."""

import sys

from . import elasticmq, golang, kafka, postgres, toxiproxy
from .common import ServerMissing


def main():
    if sys.argv[1:] != ["fetch"]:
        sys.exit("usage: python -m tests.servers fetch")
    missing = False
    for fetch in (postgres.fetch_18, kafka.fetch, elasticmq.fetch, toxiproxy.fetch, golang.fetch_examples):
        try:
            fetch()
        except ServerMissing as error:
            print(error, file=sys.stderr)
            missing = True
    sys.exit(1 if missing else 0)


main()
