//! Generates a message, a header or a group entry: the view, its plain form, and conversion in both directions.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{
    doc, endian_path, lines, range_check, read, read_tag, rust_integer, rust_type, structure_schema,
    text_literal, unsigned, words, write,
};
use crate::declaration::{Declaration, Endian, Field, Raw, Role, Structure, Type, Upper};

/// Generates the view `NAME` and its plain form `NAMEFields` for one structure.
pub(super) fn structure(declaration: &Declaration, item: &Structure) -> TokenStream {
    let shape =
        Shape { declaration, item, plain: format_ident!("{}Fields", item.name), minimum: item.minimum };
    let (view, group_entry, plain) = (shape.view(), shape.group_entry(), shape.plain());
    quote! { #view #group_entry #plain }
}

/// A structure and the names that its generated parts share.
struct Shape<'d> {
    declaration: &'d Declaration,
    item: &'d Structure,
    /// The name of the plain form.
    plain: Ident,
    /// Bytes of the fixed part.
    minimum: usize,
}

impl Shape<'_> {
    fn size(&self, field: &Field) -> usize {
        self.declaration.size_of(&field.field_type).unwrap_or(0)
    }

    fn doc(&self, field: &Field) -> TokenStream {
        doc(&field.doc, &describe(field, self.size(field)))
    }

    // ---- the view ----

    fn view(&self) -> TokenStream {
        let Self { declaration, item, plain, minimum, .. } = self;
        let name = &item.name;
        let name_text = name.to_string();
        let view_doc = doc(&item.doc, &self.facts());
        let storage = match item.is_fixed() {
            true => quote! { bytes: &'a [u8; #minimum] },
            false => quote! { head: &'a [u8; #minimum], bytes: &'a [u8] },
        };
        let plain_lifetime = item.tail().map(|_| quote!(<'a>));
        let (tag_constant, length_constant) = (self.tag_constant(), self.length_constant());
        let (schema, decode) = (structure_schema(declaration, item), decode_body(declaration, item));
        let as_bytes = self.as_bytes();
        let accessors = item.fields.iter().map(|field| self.accessor(field));
        let copies = item.fields.iter().map(|Field { name, .. }| quote! { #name: self.#name() });
        let debug = item.fields.iter().map(|Field { name, .. }| {
            let text = name.to_string();
            quote! { .field(#text, &self.#name()) }
        });
        quote! {
            #view_doc
            #[derive(Clone, Copy, PartialEq, Eq)]
            pub struct #name<'a> { #storage }

            impl<'a> #name<'a> {
                /// Name in the declaration.
                pub const NAME: &'static str = #name_text;
                #tag_constant
                #length_constant
                /// Layout in the schema.
                pub const SCHEMA: ::tapeworks_wire::schema::Structure = #schema;

                #decode

                #as_bytes

                /// Copies all fields into plain values.
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
        }
    }

    /// Returns what the view's documentation says about tag and length.
    fn facts(&self) -> String {
        let length = length_text(self.minimum, self.item.upper);
        match &self.item.tag {
            Some((Raw::Text(text), _)) => {
                format!("A view of the message with tag `{}`, {length}.", String::from_utf8_lossy(text))
            }
            Some((Raw::Number(number), _)) => {
                format!("A view of the message with tag `{number:#x}`, {length}.")
            }
            None => format!("A view, {length}."),
        }
    }

    fn tag_constant(&self) -> Option<TokenStream> {
        let place = self.declaration.tag.filter(|_| self.item.role == Role::Message)?;
        let (raw, _) = self.item.tag.as_ref()?;
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
        Some(quote! {
            /// Tag that identifies this message.
            pub const TAG: #text = #value;
        })
    }

    fn length_constant(&self) -> TokenStream {
        let minimum = self.minimum;
        match self.item.upper {
            Upper::Exact => quote! {
                /// Length in bytes.
                pub const LENGTH: usize = #minimum;
            },
            Upper::Full(full) => quote! {
                /// Length of the shortest version, in bytes.
                pub const MINIMUM_LENGTH: usize = #minimum;
                /// Length of the longest known version, in bytes.
                pub const LENGTH: usize = #full;
            },
            Upper::Open => quote! {
                /// Length of the fixed part, in bytes.
                pub const MINIMUM_LENGTH: usize = #minimum;
            },
        }
    }

    fn as_bytes(&self) -> TokenStream {
        let minimum = self.minimum;
        if self.item.is_fixed() {
            quote! {
                /// Returns the bytes of the message.
                #[inline]
                #[must_use]
                pub const fn as_bytes(&self) -> &'a [u8; #minimum] { self.bytes }
            }
        } else {
            quote! {
                /// Returns the declared bytes of the message.
                #[inline]
                #[must_use]
                pub const fn as_bytes(&self) -> &'a [u8] { self.bytes }
            }
        }
    }

    fn accessor(&self, field: &Field) -> TokenStream {
        let (name, offset, size) = (&field.name, field.offset, self.size(field));
        let body = match &field.field_type {
            Type::Group { .. } => {
                quote! { ::tapeworks_wire::Group::of_decoded(self.bytes.get(#offset..).unwrap_or_default()) }
            }
            Type::Rest | Type::Blocks { .. } => quote! { self.bytes.get(#offset..).unwrap_or_default() },
            plain_type if field.since.is_some() => {
                let value = read(self.declaration, plain_type, field.endian, &quote!(bytes), 0, size);
                quote! {
                    let bytes = self.bytes.get(#offset..)?.first_chunk::<#size>()?;
                    Some(#value)
                }
            }
            plain_type => {
                let base = if self.item.is_fixed() { quote!(self.bytes) } else { quote!(self.head) };
                read(self.declaration, plain_type, field.endian, &base, offset, self.minimum)
            }
        };
        let (field_doc, field_type) = (self.doc(field), field_type(field));
        quote! {
            #field_doc
            #[inline]
            #[must_use]
            pub fn #name(&self) -> #field_type { #body }
        }
    }

    fn group_entry(&self) -> Option<TokenStream> {
        let (name, minimum) = (&self.item.name, self.minimum);
        (self.item.role == Role::Group).then(|| {
            quote! {
                impl<'a> ::tapeworks_wire::GroupEntry<'a> for #name<'a> {
                    const LENGTH: usize = #minimum;
                    #[inline]
                    fn view(bytes: &'a [u8]) -> Option<Self> {
                        bytes.first_chunk::<#minimum>().map(|bytes| Self { bytes })
                    }
                }
            }
        })
    }

    // ---- the plain form ----

    fn plain(&self) -> TokenStream {
        let plain = &self.plain;
        let plain_doc =
            lines(&format!("[`{}`] as plain values, to build, change or keep one.", self.item.name));
        let (lifetime, elided) = match self.item.tail() {
            Some(_) => (quote!(<'a>), quote!(<'_>)),
            None => (quote!(), quote!()),
        };
        let fields = self.item.fields.iter().map(|field| {
            let (name, field_doc, field_type) = (&field.name, self.doc(field), field_type(field));
            quote! { #field_doc pub #name: #field_type }
        });
        let encode = if self.item.is_fixed() { self.encode_fixed() } else { self.encode_open() };
        quote! {
            #plain_doc
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct #plain #lifetime { #(#fields),* }

            impl #plain #elided { #encode }
        }
    }

    /// Returns an expression for the fixed part as an array.
    fn fixed_part(&self) -> TokenStream {
        let (minimum, tag_write) = (self.minimum, self.tag_write());
        let writes = self.item.fields.iter().filter(|field| field.since.is_none()).map(|field| {
            let name = &field.name;
            write(self.declaration, &field.field_type, field.endian, quote!(self.#name), field.offset)
        });
        quote! {
            let mut out = [0u8; #minimum];
            #tag_write
            #(#writes)*
            out
        }
    }

    fn tag_write(&self) -> Option<TokenStream> {
        let place = self.declaration.tag.filter(|_| self.item.role == Role::Message)?;
        let (raw, _) = self.item.tag.as_ref()?;
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
        Some(quote! { #(#lines)* })
    }

    fn checks(&self) -> TokenStream {
        self.item.fields.iter().map(range_check).collect()
    }

    fn encode_fixed(&self) -> TokenStream {
        let (minimum, fixed_part, checks) = (self.minimum, self.fixed_part(), self.checks());
        quote! {
            /// Encodes the message. If a value is wider than its field (48 bits, for example), only the low bits are written, and a value
            /// that equals the sentinel for "absent" is written as absent. [`encode_into`](Self::encode_into) reports both as errors.
            #[inline]
            #[must_use]
            pub fn encode(&self) -> [u8; #minimum] { #fixed_part }

            /// Writes the message to the start of `target` and returns its length.
            ///
            /// # Errors
            /// `target` is too small, or a value does not fit its field. In both cases nothing is written.
            #[inline]
            pub fn encode_into(&self, target: &mut [u8]) -> Result<usize, ::tapeworks_wire::EncodeError> {
                #checks
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
    }

    fn encode_open(&self) -> TokenStream {
        let (minimum, fixed_part, checks) = (self.minimum, self.fixed_part(), self.checks());
        let late_writes = self.item.fields.iter().filter(|field| field.since.is_some());
        let late_writes = late_writes.map(|field| self.late_write(field));
        let tail_write = self.item.tail().map(|field| self.tail_write(field));
        let encode_with = self.item.tail().and_then(|field| self.encode_with(field));
        quote! {
            fn encode_head(&self) -> [u8; #minimum] { #fixed_part }

            /// Writes the message to the start of `target` and returns its length.
            ///
            /// # Errors
            /// `target` is too small, a value does not fit its field, a count disagrees with its entries (for blocks: if there are any),
            /// or a later field is present without the field before it. After an error, `target` does not hold a valid message.
            #[inline]
            pub fn encode_into(&self, target: &mut [u8]) -> Result<usize, ::tapeworks_wire::EncodeError> {
                #checks
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

            #encode_with
        }
    }

    /// Returns statements that write a field of a later version, if the field is present.
    fn late_write(&self, field: &Field) -> TokenStream {
        let (name, offset, size) = (&field.name, field.offset, self.size(field));
        let text = name.to_string();
        let lines = write(self.declaration, &field.field_type, field.endian, quote!(value), 0);
        quote! {
            if let Some(value) = self.#name {
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
        }
    }

    /// Returns statements that write the last field of a message of variable length.
    fn tail_write(&self, field: &Field) -> TokenStream {
        let (name, minimum) = (&field.name, self.minimum);
        let (bytes, count_check) = match &field.field_type {
            Type::Group { count, .. } => (
                quote!(self.#name.as_bytes()),
                quote! {
                    if u64::from(self.#count) != self.#name.len() as u64 {
                        return Err(::tapeworks_wire::EncodeError::CountMismatch {
                            field: stringify!(#count),
                            declared: u64::from(self.#count),
                            entries: self.#name.len(),
                        });
                    }
                },
            ),
            Type::Blocks { length, is_inclusive, count } => {
                let (prefix, endian, text) = (length.bytes, endian_path(field.endian), name.to_string());
                (
                    quote!(self.#name),
                    quote! {
                        ::tapeworks_wire::framing::check_blocks(
                            self.#name,
                            (#prefix, #is_inclusive),
                            #endian,
                            u64::from(self.#count),
                            [#text, stringify!(#count)],
                        )?;
                    },
                )
            }
            _ => (quote!(self.#name), TokenStream::new()),
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
    }

    /// Returns the encoder of a message with a repeating group, which takes the entries as plain values.
    fn encode_with(&self, field: &Field) -> Option<TokenStream> {
        let Type::Group { entry, count } = &field.field_type else { return None };
        let counter = self.item.fields.iter().find(|field| field.name == *count)?;
        let Type::Integer(integer) = &counter.field_type else { return None };
        let (minimum, integer, checks) = (self.minimum, rust_integer(*integer), self.checks());
        let (plain_entry, count_text) = (format_ident!("{entry}Fields"), count.to_string());
        let does = lines(&format!(
            "Writes the message with `entries` to the start of `target` and returns its length. `{count}` is written as \
             their number: the values of [`{count}`](Self::{count}) and [`{}`](Self::{}) are ignored.",
            field.name, field.name
        ));
        Some(quote! {
            #does
            ///
            /// # Errors
            /// `target` is too small, or a value or the number of entries does not fit its field. After an error, `target` does not hold
            /// a valid message.
            #[inline]
            pub fn encode_with(
                &self,
                entries: &[#plain_entry],
                target: &mut [u8],
            ) -> Result<usize, ::tapeworks_wire::EncodeError> {
                let Ok(#count) = #integer::try_from(entries.len()) else {
                    return Err(::tapeworks_wire::EncodeError::OutOfRange { field: #count_text });
                };
                let counted = Self { #count, ..*self };
                counted.check_ranges()?;
                let needed = #entry::LENGTH.saturating_mul(entries.len()).saturating_add(#minimum);
                let got = target.len();
                let Some((head, mut rest)) = target.get_mut(..needed).and_then(|all| all.split_at_mut_checked(#minimum)) else {
                    return Err(::tapeworks_wire::EncodeError::BufferTooSmall { needed, got });
                };
                head.copy_from_slice(&counted.encode_head());
                for entry in entries {
                    let length = entry.encode_into(rest)?;
                    rest = rest.get_mut(length..).unwrap_or_default();
                }
                Ok(needed)
            }

            fn check_ranges(&self) -> Result<(), ::tapeworks_wire::EncodeError> {
                #checks
                Ok(())
            }
        })
    }
}

/// Returns the Rust type of a field; a field of a later version is optional.
fn field_type(field: &Field) -> TokenStream {
    let inner = rust_type(&field.field_type);
    if field.since.is_some() { quote!(Option<#inner>) } else { inner }
}

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
        Type::Blocks { length, is_inclusive, count } => {
            let place = if *is_inclusive { "that begin with their" } else { "each behind its" };
            return format!(
                "Byte {} on: `{count}` blocks, {place} {} length.",
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

pub(super) fn length_text(minimum: usize, upper: Upper) -> String {
    match upper {
        Upper::Exact => format!("{minimum} bytes"),
        Upper::Full(full) => format!("{minimum} to {full} bytes"),
        Upper::Open => format!("{minimum} bytes and more"),
    }
}

/// Returns `decode` and, for tagged messages, `decode_known`, which skips the tag check.
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
    let wrong =
        if exact { "The bytes are too short or longer than declared" } else { "The bytes are too short" };
    let wrong_or_other = lines(&format!("# Errors\n{wrong}, or have a different tag."));
    let wrong = lines(&format!("# Errors\n{wrong}."));
    match (declaration.tag, &item.tag) {
        (Some(place), Some(_)) if item.role == Role::Message => {
            let end = place.offset + place.bytes;
            let tag = read_tag(declaration);
            quote! {
                /// Creates a view of these bytes after checking the length and the tag once.
                ///
                #wrong_or_other
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

                /// Does the same as [`decode`](Self::decode) for a caller that has already checked the tag.
                ///
                #wrong
                #[inline(always)]
                pub fn decode_known(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> { #body }
            }
        }
        _ => quote! {
            /// Creates a view of these bytes after checking the length once. Bytes after the declared length are ignored.
            ///
            /// # Errors
            /// The bytes are too short.
            #[inline]
            pub fn decode(bytes: &'a [u8]) -> Result<Self, ::tapeworks_wire::DecodeError> { #body }
        },
    }
}
