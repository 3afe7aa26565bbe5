"""QuickFIX C++, unmodified, trades through the gateway: FIX 4.4 and 5.0 SP2.

Usage: with_quickfix_cpp.py --tapeworks BINARY --work FOLDER --client PROGRAM --jars FOLDER, where the jars are QuickFIX/J's: they have the
dictionaries.
"""

import argparse
import glob
import os
import sys
import zipfile

import trading_day

VERSIONS = {"CPP44": "FIX.4.4", "CPP50": "FIXT.1.1"}


def dictionaries(jars: str, folder: str) -> str:
    """Takes the dictionaries out of the jars."""
    os.makedirs(folder, exist_ok=True)
    for jar in glob.glob(f"{jars}/quickfixj-messages-*.jar"):
        with zipfile.ZipFile(jar) as file:
            for name in {"FIX44.xml", "FIXT11.xml", "FIX50SP2.xml"} & set(file.namelist()):
                file.extract(name, folder)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tapeworks", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--jars", required=True)
    arguments = parser.parse_args()
    folder = dictionaries(arguments.jars, f"{arguments.work}/dictionaries")
    more = {
        "FIX.4.4": f"DataDictionary={folder}/FIX44.xml",
        "FIXT.1.1": "DefaultApplVerID=FIX.5.0SP2\n"
        f"TransportDataDictionary={folder}/FIXT11.xml\nAppDataDictionary={folder}/FIX50SP2.xml",
    }
    try:
        print(trading_day.trade(arguments.tapeworks, f"{arguments.work}/quickfix-cpp", [arguments.client], VERSIONS, more))
    except trading_day.Fault as fault:
        print(fault)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
