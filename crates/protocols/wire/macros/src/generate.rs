//! Generates Rust from a valid declaration: value types, views, plain forms, the message enum, and the schema.

mod structure;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use crate::declaration::Constant;
use crate::declaration::{
    Declaration, Endian, EnumRepr, Enumeration, Field, Flags, Integer, Raw, Role, Structure, Time, Type,
    Upper,
};

use structure::{length_text, structure};

pub(crate) fn generate(declaration: &Declaration) -> TokenStream {
    let enums = declaration.enums.iter().map(enumeration);
    let flags = declaration.flags.iter().map(flag_set);
    let structures = declaration.structures.iter().map(|item| structure(declaration, item));
    let message = message_enum(declaration);
    let schema = schema(declaration);
    quote! { #(#enums)* #(#flags)* #(#structures)* #message #schema }
}

// ---- names and small pieces ------------------------------------------------------------------------------

fn unsigned(bytes: usize) -> Ident {
    format_ident!("u{}", bytes * 8)
}

fn rust_integer(integer: Integer) -> Ident {
    format_ident!("{}{}", if integer.signed { 'i' } else { 'u' }, integer.container() * 8)
}

/// `AddOrderWithMpid` -> `Add Order With Mpid`
pub(crate) fn words(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (index, &character) in characters.iter().enumerate() {
        let starts_word = index > 0
            && character.is_uppercase()
            && (characters[index - 1].is_lowercase()
                || characters[index - 1].is_ascii_digit()
                || characters.get(index + 1).is_some_and(|next| next.is_lowercase()));
        let starts_number = index > 0 && character.is_ascii_digit() && characters[index - 1].is_alphabetic();
        if starts_word || starts_number {
            out.push(' ');
        }
        out.push(character);
    }
    out
}

fn snake(name: &str) -> String {
    words(name).to_lowercase().replace(' ', "_")
}

/// Joins the author's doc text with the facts from the declaration.
pub(crate) fn doc(author: &str, facts: &str) -> TokenStream {
    if author.is_empty() { lines(facts) } else { lines(&format!("{author}\n\n{facts}")) }
}

/// Documents an item with a text, as `///` does.
pub(crate) fn lines(text: &str) -> TokenStream {
    let lines = text.lines().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
    quote! { #(#[doc = #lines])* }
}

fn text_literal(text: &[u8]) -> Literal {
    Literal::byte_string(text)
}

/// Converts text to a number, first character in the highest byte, as the schema stores it.
fn raw_number(raw: &Raw) -> u64 {
    match raw {
        Raw::Text(text) => text.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        Raw::Number(number) => *number,
    }
}

fn endian_path(endian: Endian) -> TokenStream {
    match endian {
        Endian::Big => quote!(::tapeworks_wire::schema::Endian::Big),
        Endian::Little => quote!(::tapeworks_wire::schema::Endian::Little),
    }
}

// ---- reading and writing ---------------------------------------------------------------------------------

/// Returns an expression for `count` bytes at a constant offset of an array. It is a single load. The optimiser cannot always merge
/// `count` separate loads, for example when a mask lets it drop some of them.
fn bytes_at(base: &TokenStream, offset: usize, count: usize) -> TokenStream {
    let (offset, count) = (Literal::usize_unsuffixed(offset), Literal::usize_unsuffixed(count));
    quote! { ::tapeworks_wire::bytes_at::<#offset, #count, _>(#base) }
}

/// Returns an expression for the integer at a constant offset of an array of `available` bytes. An odd width is read as one wider
/// load plus a mask or shift if the array has a spare byte next to the field.
fn read_integer(
    integer: Integer,
    endian: Endian,
    base: &TokenStream,
    offset: usize,
    available: usize,
) -> TokenStream {
    let rust = rust_integer(integer);
    let from = match endian {
        Endian::Big => quote!(from_be_bytes),
        Endian::Little => quote!(from_le_bytes),
    };
    let width = integer.container();
    if width == integer.bytes {
        let bytes = bytes_at(base, offset, width);
        return quote! { #rust::#from(#bytes) };
    }
    let spare = width - integer.bytes;
    let shift = Literal::usize_unsuffixed(spare * 8);
    let mask = Literal::u64_unsuffixed((1u64 << (integer.bytes * 8)) - 1);
    let before = offset >= spare;
    let after = offset + width <= available;
    match endian {
        Endian::Big if before => {
            let bytes = bytes_at(base, offset - spare, width);
            quote! { (#rust::#from(#bytes) & #mask) }
        }
        Endian::Big if after => {
            let bytes = bytes_at(base, offset, width);
            quote! { (#rust::#from(#bytes) >> #shift) }
        }
        Endian::Little if after => {
            let bytes = bytes_at(base, offset, width);
            quote! { (#rust::#from(#bytes) & #mask) }
        }
        Endian::Little if before => {
            let bytes = bytes_at(base, offset - spare, width);
            quote! { (#rust::#from(#bytes) >> #shift) }
        }
        _ => {
            let places = (offset..offset + integer.bytes).map(|place| {
                let place = Literal::usize_unsuffixed(place);
                quote! { #base[#place] }
            });
            let zeros = (0..spare).map(|_| quote!(0));
            match endian {
                Endian::Big => quote! { #rust::#from([#(#zeros,)* #(#places),*]) },
                Endian::Little => quote! { #rust::#from([#(#places,)* #(#zeros),*]) },
            }
        }
    }
}

fn read(
    declaration: &Declaration,
    field_type: &Type,
    endian: Endian,
    base: &TokenStream,
    offset: usize,
    available: usize,
) -> TokenStream {
    match field_type {
        Type::Integer(integer) => read_integer(*integer, endian, base, offset, available),
        Type::Ascii(count) => {
            let bytes = bytes_at(base, offset, *count);
            quote! { ::tapeworks_wire::Ascii(#bytes) }
        }
        Type::AsciiNumber(count) => {
            let bytes = bytes_at(base, offset, *count);
            quote! { ::tapeworks_wire::AsciiNumber(#bytes) }
        }
        Type::Bytes(count) => bytes_at(base, offset, *count),
        Type::Price(integer, _) => {
            let raw = read_integer(*integer, endian, base, offset, available);
            quote! { ::tapeworks_wire::Decimal(#raw) }
        }
        Type::Time(time, integer) => {
            let carrier = Integer { signed: false, ..*integer };
            let raw = read_integer(carrier, endian, base, offset, available);
            let name = format_ident!("{}", time.rust_name());
            let wide = time_width(*time);
            if carrier.container() == wide {
                quote! { ::tapeworks_wire::#name(#raw) }
            } else {
                let wide = unsigned(wide);
                quote! { ::tapeworks_wire::#name(#wide::from(#raw)) }
            }
        }
        Type::Named(name) => {
            if let Some(enumeration) = declaration.enumeration(name) {
                let raw = match enumeration.repr {
                    EnumRepr::Ascii(1) => {
                        let place = Literal::usize_unsuffixed(offset);
                        quote! { #base[#place] }
                    }
                    EnumRepr::Ascii(count) => bytes_at(base, offset, count),
                    EnumRepr::Integer(integer) => read_integer(integer, endian, base, offset, available),
                };
                quote! { #name::from_raw(#raw) }
            } else {
                let repr =
                    declaration.flag_set(name).map_or(Integer { bytes: 1, signed: false }, |set| set.repr);
                let raw = read_integer(repr, endian, base, offset, available);
                quote! { #name(#raw) }
            }
        }
        Type::Optional(inner, sentinel) => {
            let value = read(declaration, inner, endian, base, offset, available);
            let sentinel = Literal::i128_unsuffixed(*sentinel);
            let raw = match **inner {
                Type::Integer(_) => quote!(value),
                _ => quote!(value.0),
            };
            quote! { { let value = #value; if #raw == #sentinel { None } else { Some(value) } } }
        }
        Type::Group { .. } | Type::Blocks { .. } | Type::Rest => quote!(&[]),
    }
}

fn time_width(time: Time) -> usize {
    match time {
        Time::SecondsSinceMidnight | Time::SecondsSinceEpoch => 4,
        _ => 8,
    }
}

/// Returns the Rust type that the accessor returns and the plain form holds.
fn rust_type(field_type: &Type) -> TokenStream {
    match field_type {
        Type::Integer(integer) => {
            let rust = rust_integer(*integer);
            quote!(#rust)
        }
        Type::Ascii(count) => quote!(::tapeworks_wire::Ascii<#count>),
        Type::AsciiNumber(count) => quote!(::tapeworks_wire::AsciiNumber<#count>),
        Type::Bytes(count) => quote!([u8; #count]),
        Type::Price(integer, places) => {
            let rust = rust_integer(*integer);
            quote!(::tapeworks_wire::Decimal<#rust, #places>)
        }
        Type::Time(time, _) => {
            let name = format_ident!("{}", time.rust_name());
            quote!(::tapeworks_wire::#name)
        }
        Type::Named(name) => quote!(#name),
        Type::Optional(inner, _) => {
            let inner = rust_type(inner);
            quote!(Option<#inner>)
        }
        Type::Group { entry, .. } => quote!(::tapeworks_wire::Group<'a, #entry<'a>>),
        Type::Blocks { .. } | Type::Rest => quote!(&'a [u8]),
    }
}

/// Returns statements that store `value` at a constant offset of the array `out`.
fn write(
    declaration: &Declaration,
    field_type: &Type,
    endian: Endian,
    value: TokenStream,
    offset: usize,
) -> TokenStream {
    let copy = |count: usize, from: usize| {
        let lines = (0..count).map(|index| {
            let (to, from) =
                (Literal::usize_unsuffixed(offset + index), Literal::usize_unsuffixed(from + index));
            quote! { out[#to] = raw[#from]; }
        });
        quote! { #(#lines)* }
    };
    let integer_bytes = |integer: Integer, raw: TokenStream| {
        let width = integer.container();
        let (to, from) = match endian {
            Endian::Big => (quote!(to_be_bytes), width - integer.bytes),
            Endian::Little => (quote!(to_le_bytes), 0),
        };
        let lines = copy(integer.bytes, from);
        quote! { { let raw = (#raw).#to(); #lines } }
    };
    match field_type {
        Type::Integer(integer) => integer_bytes(*integer, value),
        Type::Price(integer, _) => integer_bytes(*integer, quote!(#value.0)),
        Type::Time(_, integer) => {
            let carrier = Integer { signed: false, ..*integer };
            let rust = rust_integer(carrier);
            integer_bytes(carrier, quote!(#value.0 as #rust))
        }
        Type::Ascii(count) | Type::AsciiNumber(count) => {
            let lines = copy(*count, 0);
            quote! { { let raw = #value.0; #lines } }
        }
        Type::Bytes(count) => {
            let lines = copy(*count, 0);
            quote! { { let raw = #value; #lines } }
        }
        Type::Named(name) => match (declaration.enumeration(name), declaration.flag_set(name)) {
            (Some(enumeration), _) => match enumeration.repr {
                EnumRepr::Ascii(1) => {
                    let to = Literal::usize_unsuffixed(offset);
                    quote! { out[#to] = #value.raw(); }
                }
                EnumRepr::Ascii(count) => {
                    let lines = copy(count, 0);
                    quote! { { let raw = #value.raw(); #lines } }
                }
                EnumRepr::Integer(integer) => integer_bytes(integer, quote!(#value.raw())),
            },
            (None, set) => {
                let repr = set.map_or(Integer { bytes: 1, signed: false }, |set| set.repr);
                integer_bytes(repr, quote!(#value.0))
            }
        },
        Type::Optional(inner, sentinel) => {
            let literal = Literal::i128_unsuffixed(*sentinel);
            let absent = match **inner {
                Type::Integer(_) => quote!(#literal),
                Type::Price(..) => quote!(::tapeworks_wire::Decimal(#literal)),
                Type::Time(time, _) => {
                    let name = format_ident!("{}", time.rust_name());
                    quote!(::tapeworks_wire::#name(#literal))
                }
                _ => quote!(Default::default()),
            };
            let inner_type = rust_type(inner);
            let lines = write(declaration, inner, endian, quote!(value), offset);
            quote! { { let value: #inner_type = match #value { Some(value) => value, None => #absent }; #lines } }
        }
        Type::Group { .. } | Type::Blocks { .. } | Type::Rest => TokenStream::new(),
    }
}

/// Returns a check that the value fits an odd width and is not the sentinel for "absent"; empty if neither can fail.
fn range_check(field: &Field) -> TokenStream {
    let name = &field.name;
    let text = name.to_string();
    let (field_type, absent) = match &field.field_type {
        Type::Optional(inner, sentinel) => (&**inner, Some(*sentinel)),
        plain => (plain, None),
    };
    let (integer, rust_bytes, raw) = match field_type {
        Type::Integer(integer) => (*integer, integer.container(), quote!(value)),
        Type::Price(integer, _) => (*integer, integer.container(), quote!(value.0)),
        Type::Time(time, integer) => (*integer, time_width(*time), quote!(value.0)),
        _ => return TokenStream::new(),
    };
    let too_wide = (integer.bytes < rust_bytes).then(|| {
        let mask = Literal::u64_unsuffixed((1u64 << (integer.bytes * 8)) - 1);
        quote! { #raw > #mask }
    });
    let is_absent = absent.map(|sentinel| {
        let sentinel = Literal::i128_unsuffixed(sentinel);
        quote! { #raw == #sentinel }
    });
    let wrong = match (too_wide, is_absent) {
        (None, None) => return TokenStream::new(),
        (Some(one), None) | (None, Some(one)) => one,
        (Some(one), Some(other)) => quote! { #one || #other },
    };
    let check = quote! {
        if #wrong {
            return Err(::tapeworks_wire::EncodeError::OutOfRange { field: #text });
        }
    };
    if absent.is_some() || field.since.is_some() {
        quote! { if let Some(value) = self.#name { #check } }
    } else {
        quote! { { let value = self.#name; #check } }
    }
}

// ---- enums and flag sets ---------------------------------------------------------------------------------

fn enumeration(item: &Enumeration) -> TokenStream {
    let name = &item.name;
    let (raw_type, length, text) = match item.repr {
        EnumRepr::Ascii(1) => (quote!(u8), 1, true),
        EnumRepr::Ascii(count) => (quote!([u8; #count]), count, true),
        EnumRepr::Integer(integer) => {
            let rust = rust_integer(integer);
            (quote!(#rust), integer.bytes, false)
        }
    };
    let literal = |raw: &Raw| match (raw, item.repr) {
        (Raw::Text(text), EnumRepr::Ascii(1)) => {
            let byte = Literal::byte_character(text[0]);
            quote!(#byte)
        }
        (Raw::Text(text), _) => {
            let text = text_literal(text);
            quote!(*#text)
        }
        (Raw::Number(number), _) => {
            let number = Literal::u64_unsuffixed(*number);
            quote!(#number)
        }
    };
    // A byte string in a pattern matches the array by value.
    let pattern = |raw: &Raw| match (raw, item.repr) {
        (Raw::Text(text), EnumRepr::Ascii(count)) if count > 1 => {
            let bytes = text.iter().map(|byte| Literal::byte_character(*byte));
            quote!([#(#bytes),*])
        }
        _ => literal(raw),
    };
    let shown = |raw: &Raw| match raw {
        Raw::Text(text) => format!("`{:?}`", String::from_utf8_lossy(text)),
        Raw::Number(number) => format!("`{number:#x}`"),
    };
    let variants = item.variants.iter().map(|variant| {
        let (name, doc) =
            (&variant.name, doc(&variant.doc, &format!("On the wire: {}.", shown(&variant.raw))));
        quote! { #doc #name }
    });
    let from_arms = item.variants.iter().map(|variant| {
        let (name, pattern) = (&variant.name, pattern(&variant.raw));
        quote! { #pattern => Self::#name }
    });
    let raw_arms = item.variants.iter().map(|variant| {
        let (name, literal) = (&variant.name, literal(&variant.raw));
        quote! { Self::#name => #literal }
    });
    let name_arms = item.variants.iter().map(|variant| {
        let (name, text) = (&variant.name, variant.name.to_string());
        quote! { Self::#name => Some(#text) }
    });
    let schema_values = item.variants.iter().map(|variant| {
        let (value, raw, doc) = (variant.name.to_string(), raw_number(&variant.raw), &variant.doc);
        let title = words(&value);
        quote! { ::tapeworks_wire::schema::EnumValue { name: #value, title: #title, raw: #raw, doc: #doc } }
    });
    let (name_text, doc_text) = (name.to_string(), &item.doc);
    let doc = doc(&item.doc, "Values that are not listed are kept as `Unknown`.");
    quote! {
        #doc
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum #name {
            #(#variants,)*
            /// A value that the specification does not list, unchanged.
            Unknown(#raw_type),
        }

        impl #name {
            /// The schema of this enum.
            pub const SCHEMA: ::tapeworks_wire::schema::EnumSchema = ::tapeworks_wire::schema::EnumSchema {
                name: #name_text, doc: #doc_text, length: #length, text: #text, values: &[#(#schema_values),*],
            };

            /// Converts the value on the wire.
            #[inline]
            #[must_use]
            pub const fn from_raw(raw: #raw_type) -> Self {
                match raw {
                    #(#from_arms,)*
                    other => Self::Unknown(other),
                }
            }

            /// Returns the value on the wire.
            #[inline]
            #[must_use]
            pub const fn raw(self) -> #raw_type {
                match self {
                    #(#raw_arms,)*
                    Self::Unknown(raw) => raw,
                }
            }

            /// Returns the variant's name; `None` if the value is not listed.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    #(#name_arms,)*
                    Self::Unknown(_) => None,
                }
            }
        }
    }
}

fn flag_set(item: &Flags) -> TokenStream {
    let name = &item.name;
    let repr = rust_integer(item.repr);
    let constants = item.flags.iter().map(|flag| {
        let constant = format_ident!("{}", snake(&flag.name.to_string()).to_uppercase());
        let (bit, doc) = (Literal::usize_unsuffixed(flag.bit), doc(&flag.doc, &format!("Bit {}.", flag.bit)));
        quote! { #doc pub const #constant: Self = Self(1 << #bit); }
    });
    let tests = item.flags.iter().map(|flag| {
        let method = format_ident!("{}", snake(&flag.name.to_string()));
        let bit = Literal::usize_unsuffixed(flag.bit);
        let doc = doc(&flag.doc, &format!("Returns whether bit {} is set.", flag.bit));
        quote! {
            #doc
            #[inline]
            #[must_use]
            pub const fn #method(self) -> bool { self.0 & (1 << #bit) != 0 }
        }
    });
    let schema_flags = item.flags.iter().map(|flag| {
        let (text, bit, doc) = (flag.name.to_string(), flag.bit as u8, &flag.doc);
        let title = words(&text);
        quote! { ::tapeworks_wire::schema::Flag { name: #text, title: #title, bit: #bit, doc: #doc } }
    });
    let (name_text, doc_text, length) = (name.to_string(), &item.doc, item.repr.bytes);
    let doc = doc(&item.doc, "Bits that are not listed are kept.");
    quote! {
        #doc
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct #name(
            /// All bits, unchanged.
            pub #repr,
        );

        impl #name {
            #(#constants)*

            /// The schema of this flag set.
            pub const SCHEMA: ::tapeworks_wire::schema::FlagsSchema = ::tapeworks_wire::schema::FlagsSchema {
                name: #name_text, doc: #doc_text, length: #length, flags: &[#(#schema_flags),*],
            };

            /// Returns whether all flags of `other` are set.
            #[inline]
            #[must_use]
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }

            /// Combines the flags of both.
            #[inline]
            #[must_use]
            pub const fn union(self, other: Self) -> Self { Self(self.0 | other.0) }

            #(#tests)*
        }

        impl ::core::fmt::Debug for #name {
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::tapeworks_wire::schema::write_flags(formatter, &Self::SCHEMA, u64::from(self.0))
            }
        }
    }
}

/// Returns an expression that reads the tag from the array `start`.
fn read_tag(declaration: &Declaration) -> TokenStream {
    let Some(place) = declaration.tag else { return quote!(0u8) };
    let end = place.offset + place.bytes;
    if place.text && place.bytes > 1 {
        bytes_at(&quote!(start), place.offset, place.bytes)
    } else {
        read_integer(
            Integer { bytes: place.bytes, signed: false },
            place.endian,
            &quote!(start),
            place.offset,
            end,
        )
    }
}

// ---- all messages ----------------------------------------------------------------------------------------

fn message_enum(declaration: &Declaration) -> TokenStream {
    let Some(place) = declaration.tag else { return TokenStream::new() };
    let messages: Vec<&Structure> =
        declaration.structures.iter().filter(|item| item.role == Role::Message).collect();
    let names: Vec<&Ident> = messages.iter().map(|item| &item.name).collect();
    let docs =
        messages.iter().map(|item| doc(&item.doc, &format!("{}.", length_text(item.minimum, item.upper))));
    let patterns = messages.iter().map(|item| match &item.tag {
        Some((Raw::Text(text), _)) if text.len() == 1 => {
            let byte = Literal::byte_character(text[0]);
            quote!(#byte)
        }
        Some((Raw::Text(text), _)) => {
            let bytes = text.iter().map(|byte| Literal::byte_character(*byte));
            quote!([#(#bytes),*])
        }
        Some((Raw::Number(number), _)) => {
            let number = Literal::u64_unsuffixed(*number);
            quote!(#number)
        }
        None => quote!(_),
    });
    let tag_end = place.offset + place.bytes;
    let end = declaration.constant.map_or(tag_end, |constant| tag_end.max(constant.offset + 1));
    let of_another_protocol = declaration.constant.map(|constant| {
        let (offset, value) = (Literal::usize_unsuffixed(constant.offset), Literal::u8_unsuffixed(constant.value));
        quote! {
            if start[#offset] != #value {
                return Err(::tapeworks_wire::DecodeError::unknown_message(::tapeworks_wire::TagNumber::number(tag)));
            }
        }
    });
    let tag = read_tag(declaration);
    let title = lines(&format!("Any message of {}.", declaration.title));
    let length_rule = lines(if declaration.extensible {
        "Bytes after a message's declared length belong to a later version and are ignored. There are \
         `bytes.len() - message.as_bytes().len()` of them."
    } else {
        "A message has exactly the declared length."
    });
    quote! {
        #title
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message<'a> {
            #(#docs #names(#names<'a>)),*
        }

        impl<'a> Message<'a> {
            /// Decodes the message in these bytes, without framing, by checking the tag and the length once.
            #length_rule
            ///
            /// # Errors
            /// No bytes, an unknown tag, or a length that is wrong for the tag.
            // Always inlined, because only then does the compiler merge the caller's `match` with this one.
            #[inline(always)]
            pub fn decode(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> {
                let Some(start) = bytes.first_chunk::<#end>() else {
                    return Err(::tapeworks_wire::DecodeError::no_tag(#end, bytes.len()));
                };
                let tag = #tag;
                #of_another_protocol
                match tag {
                    #(#patterns => #names::decode_known(bytes).map(Self::#names),)*
                    _ => Err(::tapeworks_wire::DecodeError::unknown_message(::tapeworks_wire::TagNumber::number(tag))),
                }
            }

            /// Returns the message's name in the declaration.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { #(Self::#names(_) => #names::NAME),* }
            }

            /// Returns the message's layout.
            #[must_use]
            pub const fn schema(&self) -> &'static ::tapeworks_wire::schema::Structure {
                match self { #(Self::#names(_) => &#names::SCHEMA),* }
            }

            /// Returns the declared bytes of the message.
            #[inline]
            #[must_use]
            pub fn as_bytes(&self) -> &'a [u8] {
                match self { #(Self::#names(view) => view.as_bytes()),* }
            }

            /// Encodes the message again, field by field, and returns its length.
            ///
            /// # Errors
            /// Same as `encode_into` of the message's plain form.
            pub fn encode_into(&self, target: &mut [u8]) -> Result<usize, ::tapeworks_wire::EncodeError> {
                match self { #(Self::#names(view) => view.to_fields().encode_into(target)),* }
            }
        }
    }
}

// ---- schema ----------------------------------------------------------------------------------------------

fn kind(declaration: &Declaration, field_type: &Type) -> TokenStream {
    let kind = quote!(::tapeworks_wire::schema::Kind);
    match field_type {
        Type::Integer(integer) if integer.signed => quote!(#kind::Signed),
        Type::Integer(_) => quote!(#kind::Unsigned),
        Type::Ascii(_) => quote!(#kind::Ascii),
        Type::AsciiNumber(_) => quote!(#kind::AsciiNumber),
        Type::Bytes(_) => quote!(#kind::Bytes),
        Type::Price(integer, places) => {
            let signed = integer.signed;
            quote!(#kind::Decimal { places: #places, signed: #signed })
        }
        Type::Time(time, _) => {
            let time = format_ident!("{}", time.rust_name());
            quote!(#kind::#time)
        }
        Type::Named(name) if declaration.enumeration(name).is_some() => quote!(#kind::Enum(&#name::SCHEMA)),
        Type::Named(name) => quote!(#kind::Flags(&#name::SCHEMA)),
        Type::Optional(inner, _) => self::kind(declaration, inner),
        Type::Group { entry, count } => {
            let count = count.to_string();
            quote!(#kind::Group { entry: &#entry::SCHEMA, count: #count })
        }
        Type::Blocks { length, is_inclusive, count } => {
            let (length, count) = (length.bytes, count.to_string());
            quote!(#kind::Blocks { length_bytes: #length, is_inclusive: #is_inclusive, count: #count })
        }
        Type::Rest => quote!(#kind::Rest),
    }
}

fn structure_schema(declaration: &Declaration, item: &Structure) -> TokenStream {
    let name = item.name.to_string();
    let (title, doc, minimum) = (words(&name), &item.doc, item.minimum);
    let full = match item.upper {
        Upper::Exact => quote!(Some(#minimum)),
        Upper::Full(full) => quote!(Some(#full)),
        Upper::Open => quote!(None),
    };
    let tag = match &item.tag {
        Some((raw, _)) => {
            let raw = raw_number(raw);
            quote!(Some(#raw))
        }
        None => quote!(None),
    };
    let fields = item.fields.iter().map(|field| {
        let (name, offset, doc) = (field.name.to_string(), field.offset, &field.doc);
        let length = declaration.size_of(&field.field_type).unwrap_or(0);
        let kind = kind(declaration, &field.field_type);
        let endian = endian_path(field.endian);
        let since = match &field.since {
            Some(version) => quote!(Some(#version)),
            None => quote!(None),
        };
        let absent = match &field.field_type {
            Type::Optional(_, sentinel) => {
                let sentinel = Literal::i128_unsuffixed(*sentinel);
                quote!(Some(#sentinel))
            }
            _ => quote!(None),
        };
        quote! {
            ::tapeworks_wire::schema::Field {
                name: #name, doc: #doc, offset: #offset, length: #length, endian: #endian, kind: #kind,
                since: #since, absent: #absent,
            }
        }
    });
    quote! {
        ::tapeworks_wire::schema::Structure {
            name: #name, title: #title, doc: #doc, tag: #tag, minimum_length: #minimum, full_length: #full,
            fields: &[#(#fields),*],
        }
    }
}

fn schema(declaration: &Declaration) -> TokenStream {
    let (name, title, version, doc) =
        (&declaration.name, &declaration.title, &declaration.version, &declaration.doc);
    let endian = endian_path(declaration.endian);
    let tag = match declaration.tag {
        Some(place) => {
            let (text, length, offset) = (place.text, place.bytes, place.offset);
            quote!(Some(::tapeworks_wire::schema::Tag { text: #text, length: #length, offset: #offset }))
        }
        None => quote!(None),
    };
    let rule = if declaration.extensible { quote!(Extensible) } else { quote!(Exact) };
    let of_role = |role: Role| {
        let names = declaration.structures.iter().filter(move |item| item.role == role).map(|item| {
            let name = &item.name;
            quote!(#name::SCHEMA)
        });
        quote!(&[#(#names),*])
    };
    let (messages, headers, groups) = (of_role(Role::Message), of_role(Role::Header), of_role(Role::Group));
    let enums = declaration.enums.iter().map(|item| {
        let name = &item.name;
        quote!(#name::SCHEMA)
    });
    let flags = declaration.flags.iter().map(|item| {
        let name = &item.name;
        quote!(#name::SCHEMA)
    });
    let constant = match declaration.constant {
        Some(Constant { offset, value }) => {
            quote!(Some(::tapeworks_wire::schema::Constant { offset: #offset, value: #value }))
        }
        None => quote!(None),
    };
    let text = lines(&format!("The schema of {} as a constant.", declaration.title));
    quote! {
        #text
        pub static SCHEMA: ::tapeworks_wire::schema::Schema = ::tapeworks_wire::schema::Schema {
            name: #name, title: #title, version: #version, doc: #doc, endian: #endian, tag: #tag,
            constant: #constant,
            length_rule: ::tapeworks_wire::schema::LengthRule::#rule,
            headers: #headers, messages: #messages, groups: #groups, enums: &[#(#enums),*], flags: &[#(#flags),*],
        };
    }
}
