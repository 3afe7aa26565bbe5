//! The declaration as a tree, with the span of each token for error messages.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Expr, ExprLit, Lit, LitInt, LitStr, Result, Token, braced};

/// Byte order of a multi-byte integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Endian {
    Big,
    Little,
}

/// An integer on the wire: 1 to 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Integer {
    pub(crate) bytes: usize,
    pub(crate) signed: bool,
}

impl Integer {
    fn from_name(name: &str) -> Option<Self> {
        let (bytes, signed) = match name {
            "u8" => (1, false),
            "u16" => (2, false),
            "u24" => (3, false),
            "u32" => (4, false),
            "u40" => (5, false),
            "u48" => (6, false),
            "u56" => (7, false),
            "u64" => (8, false),
            "i8" => (1, true),
            "i16" => (2, true),
            "i32" => (4, true),
            "i64" => (8, true),
            _ => return None,
        };
        Some(Self { bytes, signed })
    }

    /// Returns the size in bytes of the Rust integer that holds the value.
    pub(crate) fn container(self) -> usize {
        self.bytes.next_power_of_two()
    }

    pub(crate) fn wire_name(self) -> String {
        format!("{}{}", if self.signed { 'i' } else { 'u' }, self.bytes * 8)
    }
}

/// The unit and the epoch of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    NanosecondsSinceMidnight,
    NanosecondsSinceEpoch,
    Nanoseconds,
    SecondsSinceMidnight,
    SecondsSinceEpoch,
}

impl Time {
    pub(crate) fn rust_name(self) -> &'static str {
        match self {
            Time::NanosecondsSinceMidnight => "NanosecondsSinceMidnight",
            Time::NanosecondsSinceEpoch => "NanosecondsSinceEpoch",
            Time::Nanoseconds => "Nanoseconds",
            Time::SecondsSinceMidnight => "SecondsSinceMidnight",
            Time::SecondsSinceEpoch => "SecondsSinceEpoch",
        }
    }
}

/// The type of a field, as written in the declaration.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Integer(Integer),
    Ascii(usize),
    AsciiNumber(usize),
    Bytes(usize),
    Price(Integer, u8),
    Time(Time, Integer),
    /// An enum or a flag set from the same declaration.
    Named(Ident),
    Optional(Box<Type>, i128),
    Group {
        entry: Ident,
        count: Ident,
    },
    Blocks {
        length: Integer,
        /// Whether the length includes its own bytes.
        is_inclusive: bool,
        count: Ident,
    },
    Rest,
}

impl Type {
    /// Returns whether the field takes all bytes after the fixed part.
    pub(crate) fn is_tail(&self) -> bool {
        matches!(self, Type::Group { .. } | Type::Blocks { .. } | Type::Rest)
    }
}

pub(crate) struct Field {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) offset: usize,
    pub(crate) offset_span: Span,
    pub(crate) since: Option<LitStr>,
    pub(crate) endian: Endian,
    pub(crate) field_type: Type,
    pub(crate) type_span: Span,
}

/// A raw value that names a message or an enum variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    Text(Vec<u8>),
    Number(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upper {
    /// `36 bytes`
    Exact,
    /// `30..=36 bytes`
    Full(usize),
    /// `20.. bytes`
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Message,
    Header,
    Group,
}

/// A message, a header or a group entry.
pub(crate) struct Structure {
    pub(crate) doc: String,
    pub(crate) role: Role,
    pub(crate) name: Ident,
    pub(crate) tag: Option<(Raw, Span)>,
    pub(crate) minimum: usize,
    pub(crate) upper: Upper,
    pub(crate) length_span: Span,
    pub(crate) fields: Vec<Field>,
}

impl Structure {
    /// Returns whether the structure has a single length, so that the view can hold a reference to an array.
    pub(crate) fn is_fixed(&self) -> bool {
        self.upper == Upper::Exact
    }

    pub(crate) fn tail(&self) -> Option<&Field> {
        self.fields.last().filter(|field| field.field_type.is_tail())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnumRepr {
    Ascii(usize),
    Integer(Integer),
}

pub(crate) struct Variant {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) raw: Raw,
    pub(crate) raw_span: Span,
}

pub(crate) struct Enumeration {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) repr: EnumRepr,
    pub(crate) variants: Vec<Variant>,
}

pub(crate) struct Flag {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) bit: usize,
    pub(crate) bit_span: Span,
}

pub(crate) struct Flags {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) repr: Integer,
    pub(crate) flags: Vec<Flag>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TagPlace {
    pub(crate) text: bool,
    pub(crate) bytes: usize,
    pub(crate) offset: usize,
    pub(crate) endian: Endian,
}

/// A byte that has the same value in every message of the protocol.
#[derive(Clone, Copy)]
pub(crate) struct Constant {
    pub(crate) offset: usize,
    pub(crate) value: u8,
}

pub(crate) struct Declaration {
    pub(crate) doc: String,
    pub(crate) name: LitStr,
    pub(crate) title: String,
    pub(crate) version: String,
    pub(crate) endian: Endian,
    pub(crate) tag: Option<TagPlace>,
    pub(crate) constant: Option<Constant>,
    pub(crate) extensible: bool,
    pub(crate) enums: Vec<Enumeration>,
    pub(crate) flags: Vec<Flags>,
    pub(crate) structures: Vec<Structure>,
}

impl Declaration {
    pub(crate) fn enumeration(&self, name: &Ident) -> Option<&Enumeration> {
        self.enums.iter().find(|candidate| candidate.name == *name)
    }

    pub(crate) fn flag_set(&self, name: &Ident) -> Option<&Flags> {
        self.flags.iter().find(|candidate| candidate.name == *name)
    }

    pub(crate) fn structure(&self, name: &Ident, role: Role) -> Option<&Structure> {
        self.structures.iter().find(|candidate| candidate.name == *name && candidate.role == role)
    }

    /// Returns the bytes that a field of this type takes in the fixed part; `None` if the type is unknown.
    pub(crate) fn size_of(&self, field_type: &Type) -> Option<usize> {
        Some(match field_type {
            Type::Integer(integer) | Type::Price(integer, _) | Type::Time(_, integer) => integer.bytes,
            Type::Ascii(bytes) | Type::AsciiNumber(bytes) | Type::Bytes(bytes) => *bytes,
            Type::Optional(inner, _) => return self.size_of(inner),
            Type::Named(name) => match (self.enumeration(name), self.flag_set(name)) {
                (Some(enumeration), _) => match enumeration.repr {
                    EnumRepr::Ascii(bytes) => bytes,
                    EnumRepr::Integer(integer) => integer.bytes,
                },
                (None, Some(flags)) => flags.repr.bytes,
                (None, None) => return None,
            },
            Type::Group { .. } | Type::Blocks { .. } | Type::Rest => 0,
        })
    }
}

/// Returns the text of the doc comments, one line each.
pub(crate) fn doc_text(attributes: &[Attribute]) -> Result<String> {
    let mut lines = Vec::new();
    for attribute in attributes {
        let value = &attribute.meta.require_name_value()?.value;
        match value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if attribute.path().is_ident("doc") => {
                let text = text.value();
                lines.push(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned());
            }
            _ => return Err(syn::Error::new_spanned(attribute, "only doc comments are allowed here")),
        }
    }
    Ok(lines.join("\n"))
}

fn usize_literal(input: ParseStream) -> Result<(usize, Span)> {
    let literal: LitInt = input.parse()?;
    Ok((literal.base10_parse()?, literal.span()))
}

fn integer(input: ParseStream) -> Result<Integer> {
    let name: Ident = input.parse()?;
    Integer::from_name(&name.to_string()).ok_or_else(|| {
        syn::Error::new(
            name.span(),
            format!(
                "`{name}` is not an integer of the wire (u8, u16, u24, u32, u48, u64, i8, i16, i32, i64)"
            ),
        )
    })
}

fn endian(name: &Ident) -> Result<Endian> {
    match name.to_string().as_str() {
        "big" => Ok(Endian::Big),
        "little" => Ok(Endian::Little),
        _ => Err(syn::Error::new(name.span(), "expected `big` or `little`")),
    }
}

fn raw(input: ParseStream) -> Result<(Raw, Span)> {
    let literal: Lit = input.parse()?;
    let span = literal.span();
    let raw = match literal {
        Lit::Char(character) if character.value().is_ascii() => Raw::Text(vec![character.value() as u8]),
        Lit::Str(text) if text.value().is_ascii() => Raw::Text(text.value().into_bytes()),
        Lit::Byte(byte) => Raw::Number(u64::from(byte.value())),
        Lit::Int(number) => Raw::Number(number.base10_parse()?),
        _ => return Err(syn::Error::new(span, "expected ASCII text or an unsigned integer")),
    };
    Ok((raw, span))
}

pub(crate) fn comma_separated<T>(
    input: ParseStream,
    item: impl Fn(ParseStream) -> Result<T>,
) -> Result<Vec<T>> {
    let mut items = Vec::new();
    while !input.is_empty() {
        items.push(item(input)?);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(items)
}

fn field_type(input: ParseStream) -> Result<Type> {
    let name: Ident = input.parse()?;
    let text = name.to_string();
    if let Some(integer) = Integer::from_name(&text) {
        return Ok(Type::Integer(integer));
    }
    let time = match text.as_str() {
        "nanoseconds_since_midnight" => Some(Time::NanosecondsSinceMidnight),
        "nanoseconds_since_epoch" => Some(Time::NanosecondsSinceEpoch),
        "nanoseconds" => Some(Time::Nanoseconds),
        "seconds_since_midnight" => Some(Time::SecondsSinceMidnight),
        "seconds_since_epoch" => Some(Time::SecondsSinceEpoch),
        _ => None,
    };
    if let Some(time) = time {
        input.parse::<Token![<]>()?;
        let place = input.span();
        let integer = integer(input)?;
        input.parse::<Token![>]>()?;
        let seconds = matches!(time, Time::SecondsSinceMidnight | Time::SecondsSinceEpoch);
        if seconds && (integer.signed || integer.bytes > 4) {
            return Err(syn::Error::new(place, "seconds are unsigned and at most 32 bits wide"));
        }
        return Ok(Type::Time(time, integer));
    }
    Ok(match text.as_str() {
        "rest" => Type::Rest,
        "ascii" | "ascii_number" | "bytes" => {
            input.parse::<Token![<]>()?;
            let (bytes, span) = usize_literal(input)?;
            input.parse::<Token![>]>()?;
            if bytes == 0 {
                return Err(syn::Error::new(span, "a field of no bytes"));
            }
            match text.as_str() {
                "ascii" => Type::Ascii(bytes),
                "ascii_number" => Type::AsciiNumber(bytes),
                _ => Type::Bytes(bytes),
            }
        }
        "price" => {
            input.parse::<Token![<]>()?;
            let integer = integer(input)?;
            input.parse::<Token![,]>()?;
            let places: LitInt = input.parse()?;
            input.parse::<Token![>]>()?;
            let count: u8 = places.base10_parse()?;
            if count > 18 {
                return Err(syn::Error::new(places.span(), "at most 18 implied decimal places"));
            }
            Type::Price(integer, count)
        }
        "optional" => {
            input.parse::<Token![<]>()?;
            let place = input.span();
            let inner = field_type(input)?;
            let carrier = match inner {
                Type::Integer(integer) | Type::Price(integer, _) | Type::Time(_, integer) => integer,
                _ => {
                    return Err(syn::Error::new(
                        place,
                        "only integers, prices and times can be optional by a sentinel",
                    ));
                }
            };
            input.parse::<Token![,]>()?;
            let place = input.span();
            let bits = carrier.bytes as u32 * 8;
            let (low, high) = if carrier.signed {
                (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
            } else {
                (0, (1i128 << bits) - 1)
            };
            let sentinel = if input.peek(syn::Ident) {
                let name: Ident = input.parse()?;
                match name.to_string().as_str() {
                    "min" => low,
                    "max" => high,
                    _ => return Err(syn::Error::new(name.span(), "expected a number, `min` or `max`")),
                }
            } else {
                let negative = input.parse::<Option<Token![-]>>()?.is_some();
                let number: i128 = input.parse::<LitInt>()?.base10_parse()?;
                if negative { -number } else { number }
            };
            if sentinel < low || sentinel > high {
                return Err(syn::Error::new(
                    place,
                    format!("the sentinel {sentinel} does not fit into {}", carrier.wire_name()),
                ));
            }
            input.parse::<Token![>]>()?;
            Type::Optional(Box::new(inner), sentinel)
        }
        "group" => {
            input.parse::<Token![<]>()?;
            let entry = input.parse()?;
            input.parse::<Token![,]>()?;
            let count = input.parse()?;
            input.parse::<Token![>]>()?;
            Type::Group { entry, count }
        }
        "blocks" => {
            input.parse::<Token![<]>()?;
            let ahead = input.fork();
            let is_inclusive = ahead.parse::<Ident>().is_ok_and(|word| word == "inclusive");
            if is_inclusive {
                input.parse::<Ident>()?;
            }
            let length = integer(input)?;
            input.parse::<Token![,]>()?;
            let count = input.parse()?;
            input.parse::<Token![>]>()?;
            Type::Blocks { length, is_inclusive, count }
        }
        _ => Type::Named(name),
    })
}

/// Parses the name of a field, which also names its accessor.
pub(crate) fn field_name(input: ParseStream<'_>) -> Result<Ident> {
    let name = input.call(Ident::parse_any)?;
    if syn::parse_str::<Ident>(&name.to_string()).is_err() {
        let text = format!(
            "a field cannot be named `{name}`: it is a keyword of Rust, and the field becomes a method"
        );
        return Err(Error::new(name.span(), text));
    }
    Ok(name)
}

fn field(input: ParseStream, default_endian: Endian) -> Result<Field> {
    let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
    let name = field_name(input)?;
    input.parse::<Token![@]>()?;
    let (offset, offset_span) = usize_literal(input)?;
    let since = if input.peek(syn::Ident) {
        let word: Ident = input.parse()?;
        if word != "since" {
            return Err(syn::Error::new(word.span(), "expected `:` or `since \"VERSION\":`"));
        }
        Some(input.parse::<LitStr>()?)
    } else {
        None
    };
    input.parse::<Token![:]>()?;
    let mut own_endian = default_endian;
    if input.peek(syn::Ident) && input.peek2(syn::Ident) {
        own_endian = endian(&input.parse()?)?;
    }
    let type_span = input.span();
    let field_type = field_type(input)?;
    Ok(Field { doc, name, offset, offset_span, since, endian: own_endian, field_type, type_span })
}

fn structure(input: ParseStream, doc: String, role: Role, default_endian: Endian) -> Result<Structure> {
    let name: Ident = input.parse()?;
    input.parse::<Token![=]>()?;
    let tag = if role == Role::Message {
        let tag = raw(input)?;
        input.parse::<Token![,]>()?;
        Some(tag)
    } else {
        None
    };
    let (minimum, mut length_span) = usize_literal(input)?;
    let upper = if input.parse::<Option<Token![..=]>>()?.is_some() {
        let (full, span) = usize_literal(input)?;
        length_span = span;
        Upper::Full(full)
    } else if input.parse::<Option<Token![..]>>()?.is_some() {
        Upper::Open
    } else {
        Upper::Exact
    };
    let unit: Ident = input.parse()?;
    if unit != "bytes" && unit != "byte" {
        return Err(syn::Error::new(unit.span(), "expected `bytes`"));
    }
    let content;
    braced!(content in input);
    let fields = comma_separated(&content, |input| field(input, default_endian))?;
    Ok(Structure { doc, role, name, tag, minimum, upper, length_span, fields })
}

fn enumeration(input: ParseStream, doc: String) -> Result<Enumeration> {
    let name: Ident = input.parse()?;
    input.parse::<Token![:]>()?;
    let place = input.span();
    let repr = match field_type(input)? {
        Type::Integer(integer) => EnumRepr::Integer(integer),
        Type::Ascii(bytes) if bytes <= 8 => EnumRepr::Ascii(bytes),
        _ => return Err(syn::Error::new(place, "an enum is an integer or ascii<1> to ascii<8>")),
    };
    let content;
    braced!(content in input);
    let variants = comma_separated(&content, |input| {
        let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let (mut value, raw_span) = raw(input)?;
        match (&mut value, repr) {
            (Raw::Text(text), EnumRepr::Ascii(bytes)) if text.len() <= bytes => text.resize(bytes, b' '),
            (Raw::Text(text), EnumRepr::Ascii(bytes)) => {
                return Err(syn::Error::new(
                    raw_span,
                    format!("{} characters do not fit into ascii<{bytes}>", text.len()),
                ));
            }
            (Raw::Number(number), EnumRepr::Integer(integer)) => {
                let bits = integer.bytes as u32 * 8;
                if integer.signed || (bits < 64 && *number >> bits != 0) {
                    return Err(syn::Error::new(
                        raw_span,
                        format!("{number} does not fit into {}", integer.wire_name()),
                    ));
                }
            }
            _ => return Err(syn::Error::new(raw_span, "the value is not of the enum's type")),
        }
        Ok(Variant { doc, name, raw: value, raw_span })
    })?;
    Ok(Enumeration { doc, name, repr, variants })
}

fn flag_set(input: ParseStream, doc: String) -> Result<Flags> {
    let name: Ident = input.parse()?;
    input.parse::<Token![:]>()?;
    let place = input.span();
    let repr = integer(input)?;
    if repr.signed || repr.container() != repr.bytes {
        return Err(syn::Error::new(place, "a flag set is u8, u16, u32 or u64"));
    }
    let content;
    braced!(content in input);
    let flags = comma_separated(&content, |input| {
        let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let (bit, bit_span) = usize_literal(input)?;
        Ok(Flag { doc, name, bit, bit_span })
    })?;
    Ok(Flags { doc, name, repr, flags })
}

impl Parse for Declaration {
    fn parse(input: ParseStream) -> Result<Self> {
        let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
        let word: Ident = input.parse()?;
        if word != "protocol" {
            return Err(syn::Error::new(word.span(), "expected `protocol \"name\" { .. }` first"));
        }
        let name: LitStr = input.parse()?;
        let content;
        braced!(content in input);
        let (mut title, mut version, mut order, mut extensible) = (None, None, None, None);
        let mut tag: Option<(bool, usize, usize)> = None;
        let mut constant = None;
        while !content.is_empty() {
            let key: Ident = content.parse()?;
            content.parse::<Token![:]>()?;
            match key.to_string().as_str() {
                "title" => title = Some(content.parse::<LitStr>()?.value()),
                "version" => version = Some(content.parse::<LitStr>()?.value()),
                "endian" => order = Some(endian(&content.parse()?)?),
                "tag" => {
                    let place = content.span();
                    let (text, bytes) = match field_type(&content)? {
                        Type::Ascii(bytes) if bytes <= 8 => (true, bytes),
                        Type::Integer(integer) if !integer.signed && integer.container() == integer.bytes => {
                            (false, integer.bytes)
                        }
                        _ => {
                            return Err(syn::Error::new(
                                place,
                                "a tag is ascii<1> to ascii<8>, u8, u16, u32 or u64",
                            ));
                        }
                    };
                    content.parse::<Token![@]>()?;
                    tag = Some((text, bytes, usize_literal(&content)?.0));
                }
                "constant" => {
                    let place = content.span();
                    if !matches!(field_type(&content)?, Type::Integer(integer) if !integer.signed && integer.bytes == 1)
                    {
                        return Err(syn::Error::new(place, "a constant is a u8"));
                    }
                    content.parse::<Token![@]>()?;
                    let offset = usize_literal(&content)?.0;
                    content.parse::<Token![=]>()?;
                    constant = Some(Constant { offset, value: content.parse::<LitInt>()?.base10_parse()? });
                }
                "length" => {
                    let rule: Ident = content.parse()?;
                    extensible = Some(match rule.to_string().as_str() {
                        "exact" => false,
                        "extensible" => true,
                        _ => return Err(syn::Error::new(rule.span(), "expected `exact` or `extensible`")),
                    });
                }
                _ => {
                    return Err(syn::Error::new(
                        key.span(),
                        "expected `title`, `version`, `endian`, `tag`, `constant` or `length`",
                    ));
                }
            }
            if !content.is_empty() {
                content.parse::<Token![,]>()?;
            }
        }
        let missing =
            |what: &str| syn::Error::new(name.span(), format!("the protocol does not say its `{what}`"));
        if constant.is_some() && tag.is_none() {
            return Err(missing("tag"));
        }
        let endian = order.ok_or_else(|| missing("endian"))?;
        let mut declaration = Declaration {
            doc,
            title: title.ok_or_else(|| missing("title"))?,
            version: version.ok_or_else(|| missing("version"))?,
            endian,
            tag: tag.map(|(text, bytes, offset)| TagPlace { text, bytes, offset, endian }),
            constant,
            extensible: extensible.ok_or_else(|| missing("length"))?,
            name,
            enums: Vec::new(),
            flags: Vec::new(),
            structures: Vec::new(),
        };
        while !input.is_empty() {
            let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
            if input.parse::<Option<Token![enum]>>()?.is_some() {
                declaration.enums.push(enumeration(input, doc)?);
                continue;
            }
            let word: Ident = input.parse()?;
            let role = match word.to_string().as_str() {
                "flags" => {
                    declaration.flags.push(flag_set(input, doc)?);
                    continue;
                }
                "message" => Role::Message,
                "header" => Role::Header,
                "group" => Role::Group,
                _ => {
                    return Err(syn::Error::new(
                        word.span(),
                        "expected `enum`, `flags`, `group`, `header` or `message`",
                    ));
                }
            };
            declaration.structures.push(structure(input, doc, role, endian)?);
        }
        Ok(declaration)
    }
}
