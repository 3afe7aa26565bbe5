//! The declaration as a tree, with the span of each token for error messages.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Lifetime, Lit, Result, Token, Type, Visibility, braced, bracketed, parenthesized,
};
use tapeworks_dispatch_search::values;

/// The dispatcher: how a code and a state select a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dispatch {
    Table,
    Match,
    Chain,
}

/// A state.
pub(crate) struct State {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) name: Ident,
}

/// A parameter of an event.
pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) of: Type,
}

/// An event.
pub(crate) struct Event {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) name: Ident,
    /// Its code on the wire.
    pub(crate) code: Option<(u64, Span)>,
    pub(crate) parameters: Vec<Parameter>,
}

/// A row of the table.
pub(crate) struct Row {
    /// `None`: any state.
    pub(crate) states: Option<Vec<Ident>>,
    /// `None`: any event.
    pub(crate) event: Option<Ident>,
    pub(crate) guard: Option<Ident>,
    pub(crate) action: Option<Ident>,
    /// `None`: the state does not change.
    pub(crate) next: Option<Ident>,
    /// Where errors about the whole row point.
    pub(crate) span: Span,
}

/// The whole declaration.
pub(crate) struct Declaration {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    pub(crate) lifetimes: Vec<Lifetime>,
    pub(crate) context: Type,
    pub(crate) message: Option<Type>,
    /// The return type of actions; `None`: nothing.
    pub(crate) output: Option<Type>,
    pub(crate) dispatch: Dispatch,
    pub(crate) state_attributes: Vec<Attribute>,
    pub(crate) states: Vec<State>,
    pub(crate) event_attributes: Vec<Attribute>,
    pub(crate) events: Vec<Event>,
    pub(crate) rows: Vec<Row>,
}

/// Parses `word`, which is not a Rust keyword.
fn expect(input: ParseStream<'_>, word: &str) -> Result<()> {
    let found = input
        .call(Ident::parse_any)
        .map_err(|error| Error::new(error.span(), format!("expected `{word}`")))?;
    if found == word { Ok(()) } else { Err(Error::new(found.span(), format!("expected `{word}`"))) }
}

impl Parse for Dispatch {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "table" => Ok(Self::Table),
            "match" => Ok(Self::Match),
            "chain" => Ok(Self::Chain),
            _ => Err(Error::new(word.span(), "unknown dispatch: neither `table`, `match` nor `chain`")),
        }
    }
}

impl Parse for State {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Ok(Self { attributes: input.call(Attribute::parse_outer)?, name: input.parse()? })
    }
}

impl Parse for Parameter {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self { name, of: input.parse()? })
    }
}

/// The forms of a code, for the error message.
const CODE: &str = "a code is a number such as 0x44, a character 'D' or a text \"AE\"";

/// Parses an event's code. Returns its value and its span.
fn code(input: ParseStream<'_>) -> Result<(u64, Span)> {
    if input.peek(Token![-]) {
        return Err(input.error(format!("{CODE}, and never negative")));
    }
    if input.peek(syn::Ident) {
        return Err(input.error(format!("{CODE}, written out: what a name stands for is not known here")));
    }
    let literal = input.fork().parse::<Lit>().map_err(|_| input.error(CODE))?;
    let code = value(&literal)?;
    input.parse::<Lit>()?;
    Ok((code, literal.span()))
}

fn value(literal: &Lit) -> Result<u64> {
    let text_of = |text: &str| {
        values::code(text).ok_or_else(|| {
            Error::new(literal.span(), "a code in quotes has 1 to 8 printable ASCII characters")
        })
    };
    match literal {
        Lit::Int(number) => number.base10_parse().map_err(|_| {
            Error::new(literal.span(), format!("a code has at most 64 bits, up to {}", u64::MAX))
        }),
        Lit::Byte(byte) => Ok(byte.value().into()),
        Lit::Char(character) => text_of(character.value().encode_utf8(&mut [0; 4])),
        Lit::Str(text) => text_of(&text.value()),
        _ => Err(Error::new(literal.span(), CODE)),
    }
}

impl Parse for Event {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        let mut found = None;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            found = Some(code(input)?);
        }
        let mut parameters = Vec::new();
        if input.peek(syn::token::Paren) {
            let inside;
            parenthesized!(inside in input);
            parameters.extend(Punctuated::<Parameter, Token![,]>::parse_terminated(&inside)?);
        }
        Ok(Self { attributes, name, code: found, parameters })
    }
}

/// Parses a name, or `_` as `None`.
fn name_or_any(input: ParseStream<'_>) -> Result<Option<Ident>> {
    if input.parse::<Option<Token![_]>>()?.is_some() { Ok(None) } else { input.parse().map(Some) }
}

impl Parse for Row {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let span = input.span();
        let mut states = None;
        if input.parse::<Option<Token![_]>>()?.is_none() {
            states =
                Some(Punctuated::<Ident, Token![|]>::parse_separated_nonempty(input)?.into_iter().collect());
        }
        input.parse::<Token![+]>()?;
        let event = name_or_any(input)?;
        let mut guard = None;
        if input.peek(syn::token::Bracket) {
            let inside;
            bracketed!(inside in input);
            guard = Some(inside.parse()?);
            if !inside.is_empty() {
                return Err(inside.error("a guard is the name of one method"));
            }
        }
        input.parse::<Token![=>]>()?;
        let action = name_or_any(input)?;
        let mut next = None;
        if input.parse::<Option<Token![->]>>()?.is_some() {
            next = Some(input.parse()?);
        }
        input.parse::<Token![;]>()?;
        Ok(Self { states, event, guard, action, next, span })
    }
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        expect(input, "machine")?;
        let name: Ident = input.parse()?;
        let mut lifetimes = Vec::new();
        if input.parse::<Option<Token![<]>>()?.is_some() {
            lifetimes.extend(Punctuated::<Lifetime, Token![,]>::parse_separated_nonempty(input)?);
            input.parse::<Token![>]>()?;
        }
        let (mut context, mut message, mut output, mut dispatch) = (None, None, None, None);
        let inside;
        braced!(inside in input);
        while !inside.is_empty() {
            let key = inside.call(Ident::parse_any)?;
            inside.parse::<Token![:]>()?;
            let is_repeated = match key.to_string().as_str() {
                "context" => context.replace(inside.parse()?).is_some(),
                "message" => message.replace(inside.parse()?).is_some(),
                "output" => output.replace(inside.parse()?).is_some(),
                "dispatch" => dispatch.replace(inside.parse()?).is_some(),
                _ => {
                    return Err(Error::new(
                        key.span(),
                        "neither `context`, `message`, `output` nor `dispatch`",
                    ));
                }
            };
            if is_repeated {
                return Err(Error::new(key.span(), format!("`{key}` is given twice")));
            }
            if !inside.is_empty() {
                inside.parse::<Token![,]>()?;
            }
        }
        let missing = |what: &str| Error::new(name.span(), format!("the machine does not say its `{what}`"));
        let context = context.ok_or_else(|| missing("context"))?;
        let dispatch = dispatch.ok_or_else(|| missing("dispatch"))?;

        let state_attributes = input.call(Attribute::parse_outer)?;
        expect(input, "states")?;
        let inside;
        braced!(inside in input);
        let states = Punctuated::<State, Token![,]>::parse_terminated(&inside)?.into_iter().collect();

        let event_attributes = input.call(Attribute::parse_outer)?;
        expect(input, "events")?;
        let inside;
        braced!(inside in input);
        let events = Punctuated::<Event, Token![,]>::parse_terminated(&inside)?.into_iter().collect();

        expect(input, "rows")?;
        let inside;
        braced!(inside in input);
        let mut rows = Vec::new();
        while !inside.is_empty() {
            rows.push(inside.parse()?);
        }
        Ok(Self {
            attributes,
            visibility,
            name,
            lifetimes,
            context,
            message,
            output,
            dispatch,
            state_attributes,
            states,
            event_attributes,
            events,
            rows,
        })
    }
}
