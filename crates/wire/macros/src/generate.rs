//! The Rust that a sound declaration stands for: value types, views, plain forms, the message enum, the schema.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use crate::declaration::{
    Declaration, Endian, EnumRepr, Enumeration, Field, Flags, Integer, Raw, Role, Structure, Time, Type,
    Upper,
};

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
fn words(name: &str) -> String {
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

/// The author's words, then what the declaration says anyway.
fn doc(author: &str, facts: &str) -> TokenStream {
    let text = if author.is_empty() { facts.to_owned() } else { format!("{author}\n\n{facts}") };
    quote! { #[doc = #text] }
}

fn text_literal(text: &[u8]) -> Literal {
    Literal::byte_string(text)
}

/// Text as a number, first character highest: what the schema stores.
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

/// An expression for `count` bytes at a constant offset of an array: one load, not `count` loads that the optimiser
/// has to find together again (it does not where a mask lets it drop some of them).
fn bytes_at(base: &TokenStream, offset: usize, count: usize) -> TokenStream {
    let (offset, count) = (Literal::usize_unsuffixed(offset), Literal::usize_unsuffixed(count));
    quote! { ::tapeworks_wire::bytes_at::<#offset, #count, _>(#base) }
}

/// An expression for the integer at a constant offset of an array of `available` bytes. Odd widths are read as
/// one wider load and a mask or shift where the array has a byte to spare beside them.
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

/// The Rust type that the accessor answers and the plain form holds.
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

/// Statements that put `value` at a constant offset of the array `out`.
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

/// A check that the value fits into an odd width and is not the one that stands for none; nothing where neither can be.
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
            /// A value that the document does not list, as it came.
            Unknown(#raw_type),
        }

        impl #name {
            /// The enum in the schema.
            pub const SCHEMA: ::tapeworks_wire::schema::EnumSchema = ::tapeworks_wire::schema::EnumSchema {
                name: #name_text, doc: #doc_text, length: #length, text: #text, values: &[#(#schema_values),*],
            };

            /// The value for what is on the wire.
            #[inline]
            #[must_use]
            pub const fn from_raw(raw: #raw_type) -> Self {
                match raw {
                    #(#from_arms,)*
                    other => Self::Unknown(other),
                }
            }

            /// What is on the wire for this value.
            #[inline]
            #[must_use]
            pub const fn raw(self) -> #raw_type {
                match self {
                    #(#raw_arms,)*
                    Self::Unknown(raw) => raw,
                }
            }

            /// The variant's name; `None` if the value is not listed.
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
        let doc = doc(&flag.doc, &format!("Is bit {} set?", flag.bit));
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
            /// All bits as they came.
            pub #repr,
        );

        impl #name {
            #(#constants)*

            /// The flag set in the schema.
            pub const SCHEMA: ::tapeworks_wire::schema::FlagsSchema = ::tapeworks_wire::schema::FlagsSchema {
                name: #name_text, doc: #doc_text, length: #length, flags: &[#(#schema_flags),*],
            };

            /// Are all flags of `other` set?
            #[inline]
            #[must_use]
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }

            /// The flags of both.
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

// ---- messages, headers, group entries --------------------------------------------------------------------

fn describe(field: &Field, size: usize) -> String {
    let type_text = match &field.field_type {
        Type::Integer(integer) => integer.wire_name(),
        Type::Ascii(_) => "text".to_owned(),
        Type::AsciiNumber(_) => "digits".to_owned(),
        Type::Bytes(_) => "bytes".to_owned(),
        Type::Price(integer, places) => format!("{} with {places} implied decimals", integer.wire_name()),
        Type::Time(time, integer) => {
            format!("{}, {}", words(time.rust_name()).to_lowercase(), integer.wire_name())
        }
        Type::Named(name) => format!("[`{name}`]"),
        Type::Optional(inner, sentinel) => match **inner {
            Type::Price(integer, places) => {
                format!("{} with {places} implied decimals, {sentinel} is none", integer.wire_name())
            }
            Type::Integer(integer) => format!("{}, {sentinel} is none", integer.wire_name()),
            _ => format!("a time, {sentinel} is none"),
        },
        Type::Group { entry, count } => {
            return format!("Byte {} on: `{count}` entries of [`{entry}`].", field.offset);
        }
        Type::Blocks { length, count } => {
            return format!(
                "Byte {} on: `{count}` blocks, each behind its {} length.",
                field.offset,
                length.wire_name()
            );
        }
        Type::Rest => return format!("Byte {} to the end.", field.offset),
    };
    let since = field.since.as_ref().map_or(String::new(), |version| format!(" Since {}.", version.value()));
    match size {
        1 => format!("Byte {}: {type_text}.{since}", field.offset),
        _ => format!("Bytes {} to {}: {type_text}.{since}", field.offset, field.offset + size - 1),
    }
}

fn structure(declaration: &Declaration, item: &Structure) -> TokenStream {
    let name = &item.name;
    let name_text = name.to_string();
    let plain = format_ident!("{name}Fields");
    let minimum = item.minimum;
    let fixed = item.is_fixed();
    let tail = item.tail();
    let place = declaration.tag.filter(|_| item.role == Role::Message);

    let plain_lifetime = if tail.is_some() { quote!(<'a>) } else { quote!() };
    let plain_elided = if tail.is_some() { quote!(<'_>) } else { quote!() };
    let (base, storage) = if fixed {
        (quote!(self.bytes), quote! { bytes: &'a [u8; #minimum] })
    } else {
        (quote!(self.head), quote! { head: &'a [u8; #minimum], bytes: &'a [u8] })
    };

    let mut accessors = Vec::new();
    let mut plain_fields = Vec::new();
    let mut copies = Vec::new();
    let mut writes = Vec::new();
    let mut late_writes = Vec::new();
    let mut checks = Vec::new();
    let mut debug = Vec::new();
    for field in &item.fields {
        let field_name = &field.name;
        let size = declaration.size_of(&field.field_type).unwrap_or(0);
        let field_doc = doc(&field.doc, &describe(field, size));
        let inner_type = rust_type(&field.field_type);
        let field_type = if field.since.is_some() { quote!(Option<#inner_type>) } else { inner_type };
        let offset = field.offset;
        let body = match &field.field_type {
            Type::Group { .. } => {
                quote! { ::tapeworks_wire::Group::of_decoded(self.bytes.get(#offset..).unwrap_or_default()) }
            }
            Type::Rest | Type::Blocks { .. } => quote! { self.bytes.get(#offset..).unwrap_or_default() },
            plain_type if field.since.is_some() => {
                let value = read(declaration, plain_type, field.endian, &quote!(bytes), 0, size);
                quote! {
                    let bytes = self.bytes.get(#offset..)?.first_chunk::<#size>()?;
                    Some(#value)
                }
            }
            plain_type => read(declaration, plain_type, field.endian, &base, offset, minimum),
        };
        accessors.push(quote! {
            #field_doc
            #[inline]
            #[must_use]
            pub fn #field_name(&self) -> #field_type { #body }
        });
        plain_fields.push(quote! { #field_doc pub #field_name: #field_type });
        copies.push(quote! { #field_name: self.#field_name() });
        checks.push(range_check(field));
        if field.since.is_some() {
            let text = field_name.to_string();
            let lines = write(declaration, &field.field_type, field.endian, quote!(value), 0);
            late_writes.push(quote! {
                if let Some(value) = self.#field_name {
                    if length != #offset {
                        return Err(::tapeworks_wire::EncodeError::FieldBeforeIsAbsent { field: #text });
                    }
                    let mut bytes = [0u8; #size];
                    { let out = &mut bytes; #lines }
                    let Some(place) = target.get_mut(#offset..).and_then(|place| place.first_chunk_mut::<#size>()) else {
                        return Err(::tapeworks_wire::EncodeError::BufferTooSmall { needed: #offset + #size, got });
                    };
                    *place = bytes;
                    length += #size;
                }
            });
        } else {
            writes.push(write(
                declaration,
                &field.field_type,
                field.endian,
                quote!(self.#field_name),
                offset,
            ));
        }
        let text = field_name.to_string();
        debug.push(quote! { .field(#text, &self.#field_name()) });
    }

    let tag_write = place.zip(item.tag.as_ref()).map(|(place, (raw, _))| {
        let bytes: Vec<u8> = match raw {
            Raw::Text(text) => text.clone(),
            Raw::Number(number) => match place.endian {
                Endian::Big => number.to_be_bytes()[8 - place.bytes..].to_vec(),
                Endian::Little => number.to_le_bytes()[..place.bytes].to_vec(),
            },
        };
        let lines = bytes.iter().enumerate().map(|(index, byte)| {
            let (to, byte) = (Literal::usize_unsuffixed(place.offset + index), Literal::u8_unsuffixed(*byte));
            quote! { out[#to] = #byte; }
        });
        quote! { #(#lines)* }
    });
    let tag_constant = item.tag.as_ref().zip(place).map(|((raw, _), place)| {
        let (value, text) = match raw {
            Raw::Text(text) if text.len() == 1 => {
                let byte = Literal::byte_character(text[0]);
                (quote!(#byte), quote!(u8))
            }
            Raw::Text(text) => {
                let (literal, count) = (text_literal(text), text.len());
                (quote!(*#literal), quote!([u8; #count]))
            }
            Raw::Number(number) => {
                let (number, rust) = (Literal::u64_unsuffixed(*number), unsigned(place.bytes));
                (quote!(#number), quote!(#rust))
            }
        };
        quote! {
            /// The tag that announces this message.
            pub const TAG: #text = #value;
        }
    });

    let decode = decode_body(declaration, item);
    let facts = match (&item.tag, item.upper) {
        (Some((raw, _)), upper) => {
            let tag = match raw {
                Raw::Text(text) => format!("`{}`", String::from_utf8_lossy(text)),
                Raw::Number(number) => format!("`{number:#x}`"),
            };
            format!("A view of the message with tag {tag}, {}.", length_text(minimum, upper))
        }
        (None, upper) => format!("A view, {}.", length_text(minimum, upper)),
    };
    let view_doc = doc(&item.doc, &facts);
    let plain_doc = format!("[`{name_text}`] as plain values: to build one, change one, or keep one.");
    let length_constant = match item.upper {
        Upper::Exact => quote! {
            /// Length in bytes.
            pub const LENGTH: usize = #minimum;
        },
        Upper::Full(full) => quote! {
            /// Length of the shortest version, in bytes.
            pub const MINIMUM_LENGTH: usize = #minimum;
            /// Length of the longest version that is known, in bytes.
            pub const LENGTH: usize = #full;
        },
        Upper::Open => quote! {
            /// Length of the fixed part, in bytes.
            pub const MINIMUM_LENGTH: usize = #minimum;
        },
    };
    let as_bytes = if fixed {
        quote! {
            /// The bytes of the message.
            #[inline]
            #[must_use]
            pub const fn as_bytes(&self) -> &'a [u8; #minimum] { self.bytes }
        }
    } else {
        quote! {
            /// The bytes of the message, up to the last one that is declared.
            #[inline]
            #[must_use]
            pub const fn as_bytes(&self) -> &'a [u8] { self.bytes }
        }
    };
    let group_entry = (item.role == Role::Group).then(|| {
        quote! {
            impl<'a> ::tapeworks_wire::GroupEntry<'a> for #name<'a> {
                const LENGTH: usize = #minimum;
                #[inline]
                fn view(bytes: &'a [u8]) -> Option<Self> {
                    bytes.first_chunk::<#minimum>().map(|bytes| Self { bytes })
                }
            }
        }
    });
    let encode_fixed = quote! {
        let mut out = [0u8; #minimum];
        #tag_write
        #(#writes)*
        out
    };
    let encode = if fixed {
        quote! {
            /// The message on the wire. Of a value wider than its field (48 bits and the like) the low bits are
            /// written, and a given value that stands for none is none; [`encode_into`](Self::encode_into) reports
            /// both instead.
            #[inline]
            #[must_use]
            pub fn encode(&self) -> [u8; #minimum] { #encode_fixed }

            /// Writes the message to the start of `target` and answers its length.
            ///
            /// # Errors
            /// `target` is too small, or a value does not fit into its field. Nothing is written then.
            #[inline]
            pub fn encode_into(&self, target: &mut [u8]) -> Result<usize, ::tapeworks_wire::EncodeError> {
                #(#checks)*
                let got = target.len();
                match target.first_chunk_mut::<#minimum>() {
                    Some(place) => {
                        *place = self.encode();
                        Ok(#minimum)
                    }
                    None => Err(::tapeworks_wire::EncodeError::BufferTooSmall { needed: #minimum, got }),
                }
            }
        }
    } else {
        let tail_write = tail.map(|field| {
            let field_name = &field.name;
            let (bytes, count_check) = match &field.field_type {
                Type::Group { count, .. } => (
                    quote!(self.#field_name.as_bytes()),
                    quote! {
                        if u64::from(self.#count) != self.#field_name.len() as u64 {
                            return Err(::tapeworks_wire::EncodeError::CountMismatch {
                                field: stringify!(#count),
                                declared: u64::from(self.#count),
                                entries: self.#field_name.len(),
                            });
                        }
                    },
                ),
                Type::Blocks { length, count } => {
                    let (prefix, endian, text) =
                        (length.bytes, endian_path(field.endian), field_name.to_string());
                    (
                        quote!(self.#field_name),
                        quote! {
                            ::tapeworks_wire::framing::check_blocks(
                                self.#field_name,
                                #prefix,
                                #endian,
                                u64::from(self.#count),
                                [#text, stringify!(#count)],
                            )?;
                        },
                    )
                }
                _ => (quote!(self.#field_name), TokenStream::new()),
            };
            quote! {
                #count_check
                let tail = #bytes;
                let Some(place) = target.get_mut(#minimum..#minimum + tail.len()) else {
                    return Err(::tapeworks_wire::EncodeError::BufferTooSmall { needed: #minimum + tail.len(), got });
                };
                place.copy_from_slice(tail);
                length += tail.len();
            }
        });
        quote! {
            fn encode_head(&self) -> [u8; #minimum] { #encode_fixed }

            /// Writes the message to the start of `target` and answers its length.
            ///
            /// # Errors
            /// `target` is too small, a value does not fit into its field, a count disagrees with the entries (of
            /// blocks: if there are any), or a later field is given without the one before it. What `target` holds then is not a message.
            #[inline]
            pub fn encode_into(&self, target: &mut [u8]) -> Result<usize, ::tapeworks_wire::EncodeError> {
                #(#checks)*
                let got = target.len();
                let Some(place) = target.first_chunk_mut::<#minimum>() else {
                    return Err(::tapeworks_wire::EncodeError::BufferTooSmall { needed: #minimum, got });
                };
                *place = self.encode_head();
                let mut length = #minimum;
                #(#late_writes)*
                #tail_write
                Ok(length)
            }
        }
    };
    let structure_schema = structure_schema(declaration, item);
    quote! {
        #view_doc
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct #name<'a> { #storage }

        impl<'a> #name<'a> {
            /// The name in the declaration.
            pub const NAME: &'static str = #name_text;
            #tag_constant
            #length_constant
            /// The layout in the schema.
            pub const SCHEMA: ::tapeworks_wire::schema::Structure = #structure_schema;

            #decode

            #as_bytes

            /// All fields as plain values.
            #[inline]
            #[must_use]
            pub fn to_fields(&self) -> #plain #plain_lifetime { #plain { #(#copies),* } }

            #(#accessors)*
        }

        impl ::core::fmt::Debug for #name<'_> {
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                formatter.debug_struct(#name_text)#(#debug)*.finish()
            }
        }

        #group_entry

        #[doc = #plain_doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct #plain #plain_lifetime { #(#plain_fields),* }

        impl #plain #plain_elided { #encode }
    }
}

fn length_text(minimum: usize, upper: Upper) -> String {
    match upper {
        Upper::Exact => format!("{minimum} bytes"),
        Upper::Full(full) => format!("{minimum} to {full} bytes"),
        Upper::Open => format!("{minimum} bytes and more"),
    }
}

/// `decode`, and `from_known` which skips the look at the tag.
fn decode_body(declaration: &Declaration, item: &Structure) -> TokenStream {
    let name_text = item.name.to_string();
    let minimum = item.minimum;
    let exact = !declaration.extensible && item.role == Role::Message;
    let too_short = quote!(::tapeworks_wire::DecodeError::too_short(#name_text, needed, bytes.len()));
    let too_long = quote!(::tapeworks_wire::DecodeError::too_long(#name_text, needed, bytes.len()));
    let excess = exact.then(|| quote! { if bytes.len() > needed { return Err(#too_long); } });
    let body = match item.upper {
        Upper::Exact if exact => quote! {
            match <&'a [u8; #minimum]>::try_from(bytes) {
                Ok(bytes) => Ok(Self { bytes }),
                Err(_) => Err(::tapeworks_wire::DecodeError::wrong_length(#name_text, #minimum, bytes.len())),
            }
        },
        Upper::Exact => quote! {
            match bytes.first_chunk::<#minimum>() {
                Some(bytes) => Ok(Self { bytes }),
                None => Err(::tapeworks_wire::DecodeError::too_short(#name_text, #minimum, bytes.len())),
            }
        },
        Upper::Full(full) => {
            let cuts = item.fields.iter().filter(|field| field.since.is_some()).map(|field| {
                let start = field.offset;
                let end = start + declaration.size_of(&field.field_type).unwrap_or(0);
                quote! {
                    if bytes.len() > #start && bytes.len() < #end {
                        return Err(::tapeworks_wire::DecodeError::too_short(#name_text, #end, bytes.len()));
                    }
                }
            });
            quote! {
                let needed = #minimum;
                let Some(head) = bytes.first_chunk::<#minimum>() else { return Err(#too_short); };
                #(#cuts)*
                let needed = #full;
                #excess
                Ok(Self { head, bytes: bytes.get(..needed).unwrap_or(bytes) })
            }
        }
        Upper::Open => match item.tail().map(|field| &field.field_type) {
            Some(Type::Group { entry, count }) => {
                let counter = item.fields.iter().find(|field| field.name == *count);
                let count = counter.map_or(quote!(0u8), |field| {
                    read(declaration, &field.field_type, field.endian, &quote!(head), field.offset, minimum)
                });
                quote! {
                    let needed = #minimum;
                    let Some(head) = bytes.first_chunk::<#minimum>() else { return Err(#too_short); };
                    let entries = usize::try_from(#count).unwrap_or(usize::MAX);
                    let needed = entries.saturating_mul(#entry::LENGTH).saturating_add(#minimum);
                    #excess
                    match bytes.get(..needed) {
                        Some(bytes) => Ok(Self { head, bytes }),
                        None => Err(#too_short),
                    }
                }
            }
            _ => quote! {
                match bytes.first_chunk::<#minimum>() {
                    Some(head) => Ok(Self { head, bytes }),
                    None => Err(::tapeworks_wire::DecodeError::too_short(#name_text, #minimum, bytes.len())),
                }
            },
        },
    };
    let rule = if exact {
        "too short, longer than declared, or (the tag) another message"
    } else {
        "too short, or (the tag) another message"
    };
    let errors = format!("# Errors\nThe bytes are {rule}.");
    match (declaration.tag, &item.tag) {
        (Some(place), Some(_)) if item.role == Role::Message => {
            let end = place.offset + place.bytes;
            let tag = read_tag(declaration);
            quote! {
                /// A view of these bytes: the length and the tag are checked here, once.
                ///
                #[doc = #errors]
                #[inline]
                pub fn decode(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> {
                    if let Some(start) = bytes.first_chunk::<#end>() {
                        let tag = #tag;
                        if tag != Self::TAG {
                            return Err(::tapeworks_wire::DecodeError::unknown_message(
                                ::tapeworks_wire::TagNumber::number(tag),
                            ));
                        }
                    }
                    Self::decode_known(bytes)
                }

                /// [`decode`](Self::decode) for a caller who has already looked at the tag.
                ///
                #[doc = #errors]
                #[inline(always)]
                pub fn decode_known(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> { #body }
            }
        }
        _ => quote! {
            /// A view of these bytes: the length is checked here, once. Bytes past the declared length are
            /// ignored.
            ///
            /// # Errors
            /// The bytes are too short.
            #[inline]
            pub fn decode(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> { #body }
        },
    }
}

/// The tag out of the array `start`.
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
    let end = place.offset + place.bytes;
    let tag = read_tag(declaration);
    let title = format!("Any message of {}.", declaration.title);
    let length_rule = if declaration.extensible {
        "Bytes past the declared length of a message are an extension of a later version: they are ignored here, and \
         `bytes.len() - message.as_bytes().len()` says how many there are."
    } else {
        "A message has exactly the declared length."
    };
    quote! {
        #[doc = #title]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message<'a> {
            #(#docs #names(#names<'a>)),*
        }

        impl<'a> Message<'a> {
            /// The message in these bytes, without their framing: one look at the tag, one at the length.
            #[doc = #length_rule]
            ///
            /// # Errors
            /// No bytes, a tag that the protocol does not know, or the wrong length for the tag.
            // Always inlined: only then does the caller's `match` become one with this one.
            #[inline(always)]
            pub fn decode(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> {
                let Some(start) = bytes.first_chunk::<#end>() else {
                    return Err(::tapeworks_wire::DecodeError::no_tag(#end, bytes.len()));
                };
                let tag = #tag;
                match tag {
                    #(#patterns => #names::decode_known(bytes).map(Self::#names),)*
                    _ => Err(::tapeworks_wire::DecodeError::unknown_message(::tapeworks_wire::TagNumber::number(tag))),
                }
            }

            /// The message's name in the declaration.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { #(Self::#names(_) => #names::NAME),* }
            }

            /// The message's layout.
            #[must_use]
            pub const fn schema(&self) -> &'static ::tapeworks_wire::schema::Structure {
                match self { #(Self::#names(_) => &#names::SCHEMA),* }
            }

            /// The bytes of the message as far as they are declared.
            #[inline]
            #[must_use]
            pub fn as_bytes(&self) -> &'a [u8] {
                match self { #(Self::#names(view) => view.as_bytes()),* }
            }

            /// Writes the message again, field by field, and answers its length.
            ///
            /// # Errors
            /// As `encode_into` of the message's plain form.
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
        Type::Blocks { length, count } => {
            let (length, count) = (length.bytes, count.to_string());
            quote!(#kind::Blocks { length_bytes: #length, count: #count })
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
    let text = format!("The schema of {} as a constant.", declaration.title);
    quote! {
        #[doc = #text]
        pub static SCHEMA: ::tapeworks_wire::schema::Schema = ::tapeworks_wire::schema::Schema {
            name: #name, title: #title, version: #version, doc: #doc, endian: #endian, tag: #tag,
            length_rule: ::tapeworks_wire::schema::LengthRule::#rule,
            headers: #headers, messages: #messages, groups: #groups, enums: &[#(#enums),*], flags: &[#(#flags),*],
        };
    }
}
