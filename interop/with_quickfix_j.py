"""QuickFIX/J, unmodified, trades through the gateway: FIX 4.2, 4.4 and 5.0 SP2.

Usage: with_quickfix_j.py --tapeworks BINARY --work FOLDER --client FOLDER, where the client's FOLDER has client.jar and its
dependencies.
"""

import argparse
import sys

import trading_day

VERSIONS = {"JAVA42": "FIX.4.2", "JAVA44": "FIX.4.4", "JAVA50": "FIXT.1.1"}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tapeworks", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--client", required=True)
    arguments = parser.parse_args()
    path = f"{arguments.client}/client.jar:{arguments.client}/dependency/*"
    words = ["java", "-cp", path, "io.tapeworks.examples.Client"]
    more = {"FIXT.1.1": "DefaultApplVerID=FIX.5.0SP2"}
    try:
        print(trading_day.trade(arguments.tapeworks, f"{arguments.work}/quickfix-j", words, VERSIONS, more))
    except trading_day.Fault as fault:
        print(fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
