//! Writes a protocol's schema as a reference page, JSON, or a Wireshark dissector:
//! `cargo run -p tapeworks-wire --example schema_forms -- itch wireshark > itch.lua`

use tapeworks_wire::{protocol_by_name, protocols, schema};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "itch".to_owned());
    let form = arguments.next().unwrap_or_else(|| "markdown".to_owned());
    if name == "all" && form == "wireshark" {
        print!("{}", tapeworks_wire::wireshark(protocols()));
        return Ok(());
    }
    let protocol = protocol_by_name(&name).ok_or_else(|| format!("no protocol is called {name}"))?;
    let text = match form.as_str() {
        "markdown" => schema::markdown(protocol.schema),
        "json" => schema::json(protocol.schema),
        "wireshark" => tapeworks_wire::wireshark(&[protocol]),
        _ => return Err(format!("{form} is not one of markdown, json, wireshark")),
    };
    print!("{text}");
    Ok(())
}
