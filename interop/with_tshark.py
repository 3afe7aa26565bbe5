"""Compares tshark's output for the real captures, with our dissector, with the output of `tapeworks dump --json`.

The test compares every field of every message and of every transport header, in the order of the packets. A dump has the
names of enum values and flags, and tshark shows the raw values; the schema of the protocol maps the names to them.
"""

import json
import sys

from replays import CAPTURES, arguments, captures, run


class Protocol:
    """A protocol's schema, to turn the values of a dump into what tshark shows."""

    def __init__(self, tapeworks, name):
        self.schema = json.loads(run([tapeworks, "schema", name, "--format", "json"]))
        self.prefix = name.replace("-", "_").replace(".", "_")
        self.enums = {each["name"]: each for each in self.schema["enums"]}
        self.flags = {each["name"]: each for each in self.schema["flags"]}
        structures = self.schema["messages"] + self.schema["headers"]
        self.structures = {each["name"]: each for each in structures}

    def expect(self, expected, message, fields):
        """Adds what tshark must show of a message to `expected`, by the names of the dissector's fields."""
        structure = self.structures[message]
        title = structure["title"].lower().replace(" ", "_")
        for field in structure["fields"]:
            name, kind = field["name"], field["kind"]
            if name not in fields or kind in ("blocks", "rest", "group"):
                continue
            value, shown = fields[name], f"{self.prefix}.{title}.{name}"
            if kind == "decimal" and value is not None:
                value, shown = value.replace(".", "").lstrip("0") or "0", shown + "_raw"
            elif kind == "enum":
                value = self.raw_of_enum(field, value)
            elif kind == "flags":
                bits = {each["name"]: each["bit"] for each in self.flags[field["type"]]["flags"]}
                value = f"{sum(1 << bits[flag] for flag in value):#04x}"
            expected.setdefault(shown, []).append("" if value is None else str(value))

    def raw_of_enum(self, field, value):
        """The raw value of a name, as tshark shows it."""
        for known in self.enums[field["type"]]["values"]:
            if known["name"] == value:
                return str(known["raw"]).rstrip()
        return value


def main():
    """Compares every capture."""
    given = arguments(__doc__)
    script = given.work / "tapeworks.lua"
    script.write_text(run([given.tapeworks, "schema", "all", "--format", "wireshark"]))
    protocols, compared, files = {}, 0, 0
    for capture in [path for folder in [*CAPTURES, "iex-tops15"] for path in captures(folder)]:
        expected, last = {}, None
        for line in run([given.tapeworks, "dump", "--json", capture], (0, 3)).splitlines():
            dumped = json.loads(line)
            transport = dumped["transport"]
            parts = [(dumped["protocol"], dumped["message"], dumped["fields"])]
            # A packet without messages is shown as one of the transport itself.
            is_carried = transport is not None and "fields" in transport
            if is_carried and last != dumped["packet"]:
                parts.insert(0, (transport["protocol"], transport["message"], transport["fields"]))
            last = dumped["packet"]
            for name, message, fields in parts:
                if name not in protocols:
                    protocols[name] = Protocol(given.tapeworks, name)
                protocols[name].expect(expected, message, fields)
        command = ["tshark", "-X", f"lua_script:{script}", "-r", capture, "-T", "fields", "-E", "separator=|"]
        command += ["-E", "aggregator=;"]
        for name in expected:
            command += ["-e", name]
        shown = {name: [] for name in expected}
        for line in run(command).splitlines():
            for name, column in zip(expected, line.split("|")):
                shown[name] += column.split(";")
        for name, values in expected.items():
            # A blank value and no value print alike.
            values, others = [value for value in values if value], [value for value in shown[name] if value]
            if values != others:
                sys.exit(f"{capture}: {name} is {values} in the dump and {others} in tshark")
            compared += len(values)
        files += 1
    assert compared > 700, f"only {compared} values were compared"
    print(f"tshark and the dump agree: {compared} values of {files} captures")


if __name__ == "__main__":
    main()
