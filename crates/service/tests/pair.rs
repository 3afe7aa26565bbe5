//! The section `[pair]` of a plant's configuration.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::path::Path;

use tapeworks_plant::PairSetting;
use tapeworks_service::config::Config;

fn problems(text: &str) -> Vec<String> {
    Config::parse("p.toml", text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_pair_needs_two_addresses_a_role_and_a_journal() {
    let whole = "[journal]\nfolder = \"j\"\n[pair]\nlisten = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\nrole = \"standby\"\n";
    let text = |pair: &str| {
        format!(
            "{pair}[[venue]]\nname = \"a\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = \"239.1.1.1:5\"\n"
        )
    };
    let pair = Config::parse("p.toml", &text(whole)).unwrap().plant.pair.unwrap();
    let two = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(pair, PairSetting::new(two[0], two[1], false));
    for (from, to, expected) in [
        ("role = \"standby\"\n", "", "pair lacks the key 'role'"),
        ("standby", "king", "primary"),
        ("127.0.0.1:2", "127.0.0.1:1", "and not this one"),
        ("[journal]\nfolder = \"j\"\n", "", "a pair needs a [journal]"),
        ("peer", "takeover_after = \"1ms\"\npeer", "takeover_after"),
        ("peer", "takover = 1\npeer", "takover"),
        ("127.0.0.1:2", "192.0.2.1:2", "a pair over a network needs 'certificate'"),
        ("127.0.0.1:1", "0.0.0.0:1", "a pair over a network needs 'certificate'"),
    ] {
        let found = problems(&text(&whole.replacen(from, to, 1)));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}\n{expected}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn a_pair_with_tls_has_authorities_for_both_directions() {
    let venue =
        "[[venue]]\nname = \"a\"\nprotocol = \"itch\"\npublisher = \"XNAS.ITCH\"\nlines = \"239.1.1.1:5\"\n";
    let whole = format!(
        "[journal]\nfolder = \"j\"\n[pair]\nlisten = \"0.0.0.0:1\"\npeer = \"192.0.2.1:2\"\nrole = \"standby\"\n\
         certificate = \"c.pem\"\nprivate_key = \"k.pem\"\nclient_authorities = \"a.pem\"\n{venue}"
    );
    let pair = Config::parse("d/p.toml", &whole).unwrap().plant.pair.unwrap();
    assert_eq!(pair.tls.unwrap().client_authorities, Some(Path::new("d/a.pem").to_owned()));
    for (gone, expected) in [
        ("client_authorities = \"a.pem\"\n", "lacks the key 'client_authorities'"),
        ("private_key = \"k.pem\"\n", "lacks the key 'private_key'"),
    ] {
        let found = problems(&whole.replace(gone, ""));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}
