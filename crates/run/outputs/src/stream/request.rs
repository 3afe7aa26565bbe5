//! The request of a stream client, in the query of its URL.

use std::collections::BTreeSet;

use axum::extract::Query;
use axum::http::Uri;
use tapeworks_market::Symbol;

/// How records are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Encoding {
    /// Protobuf's JSON mapping, in text messages.
    #[default]
    Json,
    /// Protobuf, in binary messages.
    Protobuf,
}

/// A client's subscription. Every client gets gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// How records are encoded.
    pub encoding: Encoding,
    /// Whether to send the synthetic NBBO.
    pub nbbo: bool,
    /// Whether to send trades.
    pub trades: bool,
    /// The symbols; `None` for all.
    pub symbols: Option<BTreeSet<Symbol>>,
}

impl Default for Request {
    /// The NBBO of all symbols, as JSON.
    fn default() -> Self {
        Self { encoding: Encoding::Json, nbbo: true, trades: false, symbols: None }
    }
}

/// Why a request is refused.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The query cannot be parsed.
    #[error(
        "the query of the address cannot be read; expected encoding=json|protobuf&schema=nbbo,trades&symbols=A,B"
    )]
    Query,
    /// A parameter that does not exist.
    #[error("the parameter {0:?} does not exist; there are 'encoding', 'schema' and 'symbols'")]
    Parameter(String),
    /// A parameter occurs twice.
    #[error("the parameter '{0}' is there twice")]
    Twice(&'static str),
    /// An encoding that does not exist.
    #[error("encoding={0:?} is none; there are 'json' and 'protobuf'")]
    Encoding(String),
    /// A schema that does not exist.
    #[error("schema={0:?} is none; there are 'nbbo' and 'trades', joined by a comma")]
    Schema(String),
    /// An invalid symbol.
    #[error("symbols: {0:?} cannot be a symbol, which has {form}", form = Symbol::FORM)]
    Symbol(String),
}

impl Request {
    /// Parses the query of a URL.
    ///
    /// # Errors
    /// [`RequestError`]: one line.
    pub fn read(uri: &Uri) -> Result<Self, RequestError> {
        let Query(parameters) =
            Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|_| RequestError::Query)?;
        let mut request = Self::default();
        let mut seen = BTreeSet::new();
        for (name, value) in parameters {
            let name = match name.as_str() {
                "encoding" => "encoding",
                "schema" => "schema",
                "symbols" => "symbols",
                _ => return Err(RequestError::Parameter(name)),
            };
            if !seen.insert(name) {
                return Err(RequestError::Twice(name));
            }
            match name {
                "encoding" => {
                    request.encoding = match value.as_str() {
                        "json" => Encoding::Json,
                        "protobuf" => Encoding::Protobuf,
                        _ => return Err(RequestError::Encoding(value)),
                    };
                }
                "schema" => {
                    (request.nbbo, request.trades) = (false, false);
                    for schema in value.split(',') {
                        match schema {
                            "nbbo" => request.nbbo = true,
                            "trades" => request.trades = true,
                            _ => return Err(RequestError::Schema(schema.to_owned())),
                        }
                    }
                }
                _ => {
                    let symbol =
                        |name| Symbol::parse(name).ok_or_else(|| RequestError::Symbol(name.to_owned()));
                    request.symbols = Some(value.split(',').map(symbol).collect::<Result<_, _>>()?);
                }
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(query: &str) -> Result<Request, RequestError> {
        Request::read(&format!("/stream{query}").parse().unwrap())
    }

    #[test]
    fn a_query_is_parsed() {
        assert_eq!(read(""), Ok(Request::default()));
        assert_eq!(read("?"), Ok(Request::default()));
        let symbols = ["A", "BRK.B"].map(|name| Symbol::from_bytes(name.as_bytes()).unwrap());
        let whole = Request {
            encoding: Encoding::Protobuf,
            nbbo: true,
            trades: true,
            symbols: Some(BTreeSet::from(symbols)),
        };
        assert_eq!(read("?encoding=protobuf&schema=trades,nbbo&symbols=BRK.B,A,A"), Ok(whole.clone()));
        assert_eq!(read("?symbols=BRK.B%2CA&schema=nbbo%2Ctrades&encoding=protobuf"), Ok(whole));
        let trades = Request { nbbo: false, trades: true, ..Request::default() };
        assert_eq!(read("?schema=trades&encoding=json"), Ok(trades));
        let option = read("?symbols=SPX%20%20%20260117C05000000").unwrap().symbols.unwrap();
        assert_eq!(option, BTreeSet::from([Symbol::from_bytes(b"SPX   260117C05000000").unwrap()]));
    }

    #[test]
    fn each_error_of_a_query_is_one_line() {
        let wrong = [
            ("?encoding=xml", "encoding=\"xml\" is none"),
            ("?encoding=", "encoding=\"\" is none"),
            ("?schema=nbbo,mbo", "schema=\"mbo\" is none"),
            ("?schema=", "schema=\"\" is none"),
            ("?symbols=A,,B", "symbols: \"\" cannot be a symbol"),
            ("?symbols=ABCDEFGHIJKLMNOPQRSTUV", "symbols: \"ABCDEFGHIJKLMNOPQRSTUV\" cannot"),
            ("?symbols=A%0AB", "symbols: \"A\\nB\" cannot"),
            ("?symbols=A%20", "symbols: \"A \" cannot"),
            ("?symbols=A%C3%89", "symbols: \"A\u{c9}\" cannot"),
            ("?sybmols=A", "the parameter \"sybmols\" does not exist"),
            ("?schema=nbbo&schema=trades", "the parameter 'schema' is there twice"),
        ];
        for (query, message) in wrong {
            let error = read(query).unwrap_err().to_string();
            assert!(error.starts_with(message), "{query}: {error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    proptest! {
        #[test]
        fn no_query_breaks_it(query in "[ -~]{0,80}") {
            if let Ok(uri) = format!("/stream?{query}").parse()
                && let Err(error) = Request::read(&uri)
            {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
