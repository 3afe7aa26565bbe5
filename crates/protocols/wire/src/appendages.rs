//! Decodes the appendages of a securities information processor's quote as structures, to show messages by their schemas.

use crate::cta::cqs191::{self, NationalBboIndicator, NationalPlace};
use crate::schema::{Decoded, Schema, Structure};
use crate::utp::uqdf15::{self, FinraAdfMpidAppendageIndicator, NbboAppendageIndicator};

/// Returns the appendages of a UQDF or CQS quote, each with its offset; empty for other messages. A truncated one has its error.
#[must_use]
pub fn appendages<'a>(schema: &Schema, message: &Decoded<'a>) -> Vec<(usize, Decoded<'a>)> {
    let Some(structure) = message.structure.filter(|_| message.error.is_none()) else { return Vec::new() };
    let Some(mut offset) = structure.field("appendages").map(|field| field.offset) else { return Vec::new() };
    let letter = |name| message.bytes.get(structure.field(name)?.offset).copied();
    let announced: Vec<&'static Structure> = if schema.name == uqdf15::SCHEMA.name {
        let national = match letter("nbbo_appendage_indicator").map(NbboAppendageIndicator::from_raw) {
            Some(NbboAppendageIndicator::ShortFormNationalBboAppendage) => {
                Some(&uqdf15::ShortFormNationalBboAppendage::SCHEMA)
            }
            Some(NbboAppendageIndicator::LongFormNationalBboAppendage) => {
                Some(&uqdf15::LongFormNationalBboAppendage::SCHEMA)
            }
            _ => None,
        };
        let finra =
            letter("finra_adf_mpid_appendage_indicator").map(FinraAdfMpidAppendageIndicator::from_raw);
        let has_finra = finra == Some(FinraAdfMpidAppendageIndicator::AdfMpidsAttached);
        national.into_iter().chain(has_finra.then_some(&uqdf15::FinraAdfMpidAppendage::SCHEMA)).collect()
    } else if schema.name == cqs191::SCHEMA.name {
        let places = letter("national_bbo_indicator").map(NationalBboIndicator::from_raw);
        let [bid, offer] = places.map_or([NationalPlace::Nowhere; 2], NationalBboIndicator::places);
        let bid = match bid {
            NationalPlace::Short => Some(&cqs191::NationalBestBidShortAppendage::SCHEMA),
            NationalPlace::Long => Some(&cqs191::NationalBestBidLongAppendage::SCHEMA),
            _ => None,
        };
        let offer = match offer {
            NationalPlace::Short => Some(&cqs191::NationalBestOfferShortAppendage::SCHEMA),
            NationalPlace::Long => Some(&cqs191::NationalBestOfferLongAppendage::SCHEMA),
            _ => None,
        };
        bid.into_iter().chain(offer).collect()
    } else {
        Vec::new()
    };
    let mut found = Vec::new();
    for structure in announced {
        let rest = message.bytes.get(offset..).unwrap_or_default();
        let bytes = rest.get(..structure.minimum_length).unwrap_or(rest);
        found.push((offset, structure.decode(bytes)));
        offset += structure.minimum_length;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the appendages found in a message that has these letters in its indicators and ends in `rest`.
    fn found(
        schema: &'static Schema,
        tag: &[u8],
        letters: &[(&str, u8)],
        rest: &[u8],
    ) -> Vec<(usize, Option<&'static str>, bool)> {
        let structure =
            schema.messages.iter().find(|one| one.name == std::str::from_utf8(tag).unwrap()).unwrap();
        let (mut message, mut random) = (Vec::new(), crate::schema::SplitMix64::new(7));
        crate::schema::arbitrary(schema, structure, &mut random, &mut message);
        message.truncate(structure.field("appendages").unwrap().offset);
        for (name, letter) in letters {
            message[structure.field(name).unwrap().offset] = *letter;
        }
        message.extend(rest);
        let decoded = structure.decode(&message);
        appendages(schema, &decoded).iter().map(|(at, one)| (*at, one.name(), one.error.is_some())).collect()
    }

    #[test]
    fn the_indicators_say_which_appendages_follow_and_where() {
        let uqdf = |nbbo, finra, rest: usize| {
            let letters = [("nbbo_appendage_indicator", nbbo), ("finra_adf_mpid_appendage_indicator", finra)];
            found(&uqdf15::SCHEMA, b"QuoteLongForm", &letters, &vec![b' '; rest])
        };
        assert_eq!(uqdf(b'0', b' ', 0), []);
        let short = (79, Some("ShortFormNationalBboAppendage"), false);
        let finra = |at, is_cut| (at, Some("FinraAdfMpidAppendage"), is_cut);
        assert_eq!(uqdf(b'2', b'1', 11), [short]);
        assert_eq!(uqdf(b'2', b'2', 19), [short, finra(90, false)]);
        assert_eq!(
            uqdf(b'3', b'2', 30),
            [(79, Some("LongFormNationalBboAppendage"), false), finra(106, true)]
        );
        assert_eq!(uqdf(b'4', b'2', 8), [finra(79, false)]);
        let cqs = |letter, rest: usize| {
            found(&cqs191::SCHEMA, b"ShortQuote", &[("national_bbo_indicator", letter)], &vec![b' '; rest])
        };
        assert_eq!(cqs(b'A', 0), []);
        let bid = (41, Some("NationalBestBidShortAppendage"), false);
        assert_eq!(cqs(b'T', 10), [bid, (46, Some("NationalBestOfferShortAppendage"), false)]);
        assert_eq!(cqs(b'D', 3), [(41, Some("NationalBestOfferLongAppendage"), true)]);
        assert_eq!(cqs(b'Q', 18), [(41, Some("NationalBestBidLongAppendage"), false)]);
    }
}
