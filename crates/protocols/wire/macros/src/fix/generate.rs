//! Generates Rust from a declaration of FIX messages: enums, views, plain forms, the message enum, and the schema.

use std::collections::HashSet;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::check::tags_of;
use super::declaration::{Declaration, EnumType, Enumeration, Field, Role, Structure, Type};
use super::schema::schema;
use crate::generate::{doc, lines, words};

pub(crate) fn generate(declaration: &Declaration) -> TokenStream {
    let enums = declaration.enums.iter().map(enumeration);
    let groups = declaration.of_role(Role::Group).map(|item| group(declaration, item));
    let messages = declaration.of_role(Role::Message).map(|item| message(declaration, item));
    let header = header(declaration);
    let plain = declaration.structures.iter().map(|item| plain(declaration, item));
    let message_enum = message_enum(declaration);
    let schema = schema(declaration);
    quote! { #(#enums)* #(#groups)* #(#messages)* #header #(#plain)* #message_enum #schema }
}

// ---- enums -----------------------------------------------------------------------------------------------

fn enumeration(item: &Enumeration) -> TokenStream {
    let name = &item.name;
    let (raw_type, length, text) = match item.enum_type {
        EnumType::Character => (quote!(u8), 1usize, true),
        EnumType::Integer => (quote!(u32), 8usize, false),
    };
    let raw = |value: u64| match item.enum_type {
        EnumType::Character => Literal::byte_character(value as u8),
        EnumType::Integer => Literal::u32_unsuffixed(value as u32),
    };
    let shown = |value: u64| match item.enum_type {
        EnumType::Character => char::from(value as u8).to_string(),
        EnumType::Integer => value.to_string(),
    };
    let variants = item.variants.iter().map(|variant| {
        let (name, raw) = (&variant.name, raw(variant.raw));
        let doc = doc(&variant.doc, &format!("On the wire: `{}`.", shown(variant.raw)));
        quote! { #doc #name = #raw }
    });
    let from_arms = item.variants.iter().map(|variant| {
        let (name, raw) = (&variant.name, raw(variant.raw));
        quote! { #raw => Some(Self::#name) }
    });
    let name_arms = item.variants.iter().map(|variant| {
        let (name, text) = (&variant.name, variant.name.to_string());
        quote! { Self::#name => #text }
    });
    let from_raw = match item.enum_type {
        // A table, because the jumps of a `match` are mispredicted when the values vary.
        EnumType::Character => {
            let enum_name = name;
            let entries = item.variants.iter().map(|variant| {
                let (name, raw) = (&variant.name, raw(variant.raw));
                quote! { table[#raw as usize] = Some(#enum_name::#name); }
            });
            quote! {
                const TABLE: [Option<#name>; 256] = {
                    let mut table = [None; 256];
                    #(#entries)*
                    table
                };
                TABLE[raw as usize]
            }
        }
        EnumType::Integer => quote! { match raw { #(#from_arms,)* _ => None } },
    };
    let values = item.variants.iter().map(|variant| {
        let (value, raw, doc) =
            (variant.name.to_string(), Literal::u64_unsuffixed(variant.raw), &variant.doc);
        let title = words(&value);
        quote! { ::tapeworks_wire::schema::EnumValue { name: #value, title: #title, raw: #raw, doc: #doc } }
    });
    let (name_text, doc_text) = (name.to_string(), &item.doc);
    let doc = doc(&item.doc, "A message with another value is rejected.");
    quote! {
        #doc
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(#raw_type)]
        pub enum #name { #(#variants,)* }

        impl #name {
            /// The schema of this enum.
            pub const SCHEMA: ::tapeworks_wire::schema::EnumSchema = ::tapeworks_wire::schema::EnumSchema {
                name: #name_text, doc: #doc_text, length: #length, text: #text, values: &[#(#values),*],
            };

            /// Converts the value on the wire; `None` if it is not listed.
            #[inline]
            #[must_use]
            pub const fn from_raw(raw: #raw_type) -> Option<Self> {
                #from_raw
            }

            /// What is on the wire for this value.
            #[inline]
            #[must_use]
            pub const fn raw(self) -> #raw_type {
                self as #raw_type
            }

            /// Returns the value's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { #(#name_arms,)* }
            }
        }
    }
}

// ---- keys ------------------------------------------------------------------------------------------------

/// Returns the digits of a tag and `=` as a word, the first in the lowest byte.
fn key_of(tag: u32) -> u64 {
    format!("{tag}=").bytes().rev().fold(0, |key, byte| key << 8 | u64::from(byte))
}

fn key_literal(tag: u32) -> Literal {
    Literal::u64_unsuffixed(key_of(tag))
}

/// Returns the number of bytes of the tag and `=`.
fn tag_bytes(tag: u32) -> Literal {
    Literal::usize_unsuffixed(format!("{tag}=").len())
}

/// Returns the whole MsgType field, with SOH, as a word, and its length in bytes.
fn type_key(message_type: &str) -> (Literal, Literal) {
    let text = format!("35={message_type}\x01");
    let key = text.bytes().rev().fold(0u64, |key, byte| key << 8 | u64::from(byte));
    (Literal::u64_unsuffixed(key), Literal::usize_unsuffixed(text.len()))
}

/// A perfect hash of keys: `key * multiplier >> shift` is distinct for each key.
struct Slots {
    multiplier: u64,
    shift: u32,
}

impl Slots {
    /// Tries multipliers until one separates the keys, and adds slots after many failures. The search is deterministic across builds.
    fn find(tags: &[u32]) -> Self {
        let keys: Vec<u64> = tags.iter().map(|tag| key_of(*tag)).collect();
        let mut state = 0x7a9e_f125_u64;
        let fewest = keys.len().max(2).next_power_of_two().trailing_zeros() + 1;
        for bits in fewest..16 {
            for _ in 0..4_000 {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let multiplier = (mixed ^ mixed >> 27) | 1;
                let mut seen = HashSet::new();
                let shift = 64 - bits;
                if keys.iter().all(|key| seen.insert(key.wrapping_mul(multiplier) >> shift)) {
                    return Self { multiplier, shift };
                }
            }
        }
        Self { multiplier: 1, shift: 0 }
    }

    fn slot(&self, tag: u32) -> Literal {
        Literal::u64_unsuffixed(key_of(tag).wrapping_mul(self.multiplier) >> self.shift)
    }

    fn expression(&self) -> TokenStream {
        let (multiplier, shift) =
            (Literal::u64_unsuffixed(self.multiplier), Literal::u32_unsuffixed(self.shift));
        quote! { at.key().wrapping_mul(#multiplier) >> #shift }
    }
}

// ---- fields ----------------------------------------------------------------------------------------------

/// Returns the type in which a view stores a field.
fn stored(field: &Field) -> TokenStream {
    match &field.field_type {
        Type::Text => quote!(::tapeworks_fix_wire::Text),
        Type::Data(_) => quote!(::tapeworks_fix_wire::Span),
        Type::Character => quote!(u8),
        Type::Signed | Type::Decimal(_) => quote!(i64),
        Type::Unsigned | Type::Timestamp | Type::Time => quote!(u64),
        Type::Date => quote!(u32),
        Type::Flag => quote!(bool),
        Type::Group(_) => quote!(::tapeworks_fix_wire::GroupSpan),
        Type::Named(name) => quote!(#name),
    }
}

/// Returns what a view stores for an absent field: all bits 0, never read.
fn absent(declaration: &Declaration, field: &Field) -> TokenStream {
    match &field.field_type {
        Type::Text => quote!(::tapeworks_fix_wire::Text::NONE),
        Type::Data(_) => quote!(::tapeworks_fix_wire::Span::NONE),
        Type::Group(_) => quote!(::tapeworks_fix_wire::GroupSpan::NONE),
        Type::Flag => quote!(false),
        Type::Named(name) => {
            let first = declaration.enumeration(name).and_then(|item| item.variants.first());
            let first = first.map(|variant| &variant.name);
            quote!(#name::#first)
        }
        _ => quote!(0),
    }
}

/// Returns the type that readers get and writers pass.
fn public(field: &Field, declaration: &Declaration, is_plain: bool) -> TokenStream {
    match &field.field_type {
        Type::Text | Type::Data(_) => quote!(&'a [u8]),
        Type::Character => quote!(u8),
        Type::Signed => quote!(i64),
        Type::Unsigned => quote!(u64),
        Type::Decimal(places) => {
            let places = Literal::u8_unsuffixed(*places);
            quote!(::tapeworks_wire::Decimal<i64, #places>)
        }
        Type::Timestamp => quote!(::tapeworks_wire::NanosecondsSinceEpoch),
        Type::Time => quote!(::tapeworks_wire::NanosecondsSinceMidnight),
        Type::Date => quote!(u32),
        Type::Flag => quote!(bool),
        Type::Group(entry) if is_plain => {
            let fields = format_ident!("{entry}Fields");
            let lifetime =
                declaration.group(entry).filter(|group| declaration.borrows(group)).map(|_| quote!(<'a>));
            quote!(&'a [#fields #lifetime])
        }
        Type::Group(entry) => quote!(::tapeworks_fix_wire::Entries<'a, #entry<'a>>),
        Type::Named(name) => quote!(#name),
    }
}

/// Returns statements that read the current field of `at` into `view` and advance `at` past it.
fn read(declaration: &Declaration, field: &Field) -> TokenStream {
    let name = &field.name;
    let length = tag_bytes(field.first_tag());
    let reader = match &field.field_type {
        Type::Text => quote!(at.text(#length)?),
        Type::Character => quote!(at.character(#length)?),
        Type::Signed => quote!(at.signed(#length)?),
        Type::Unsigned => quote!(at.unsigned(#length)?),
        Type::Decimal(places) => {
            let places = Literal::u8_unsuffixed(*places);
            quote!(at.decimal::<#places>(#length)?)
        }
        Type::Timestamp => quote!(at.timestamp(#length, last)?),
        Type::Time => quote!(at.time(#length)?),
        Type::Date => quote!(at.date(#length)?),
        Type::Flag => quote!(at.flag(#length)?),
        Type::Data(_) => {
            let tag = Literal::u32_unsuffixed(field.tag);
            quote!(at.data(#length, #tag)?)
        }
        Type::Group(entry) => {
            let tag = Literal::u32_unsuffixed(field.tag);
            return quote! {
                (at, view.#name) = ::tapeworks_fix_wire::read_group::<#entry<'a>>(at, last, #length, #tag)?;
            };
        }
        Type::Named(enum_name) => return read_enum(declaration, field, enum_name),
    };
    quote! {
        let (value, end) = #reader;
        view.#name = value;
        at = at.behind(end);
    }
}

fn read_enum(declaration: &Declaration, field: &Field, enum_name: &Ident) -> TokenStream {
    let name = &field.name;
    let length = tag_bytes(field.tag);
    let is_character =
        declaration.enumeration(enum_name).is_some_and(|item| item.enum_type == EnumType::Character);
    if is_character {
        return quote! {
            let found = at.listed(#length);
            view.#name = match u8::try_from(found).ok().and_then(#enum_name::from_raw) {
                Some(value) => value,
                None => return Err(at.not_listed(found)),
            };
            at = at.behind(at.end_of_character(#length));
        };
    }
    quote! {
        let (raw, end) = at.unsigned(#length)?;
        view.#name = match u32::try_from(raw).ok().and_then(#enum_name::from_raw) {
            Some(value) => value,
            None => return Err(at.invalid(::tapeworks_fix_wire::ValueError::NotListed)),
        };
        at = at.behind(end);
    }
}

/// Returns an expression that checks whether the current field has this tag.
fn has_tag(tag: u32) -> TokenStream {
    let (key, bytes) = (key_literal(tag), Literal::usize_unsuffixed(format!("{tag}=").len()));
    quote! { at.has_key::<#bytes>(#key) }
}

/// Returns statements that read the fields that arrive in the declared order by comparing each with the bytes of its tag. The field
/// after a run of optional fields is tried before the run and after each optional field that is present, because a message has few of
/// them. `behind` is the required field that follows all of these, if there is one.
fn in_declared_order(
    declaration: &Declaration,
    fields: &[Field],
    seen: &Ident,
    behind: Option<&Field>,
) -> TokenStream {
    /// The shortest run of optional fields that is skipped as a unit.
    const RUN: usize = 3;
    let read_if_next = |index: usize, field: &Field, then: &TokenStream| {
        let tag = field.first_tag();
        let (key, bytes) = (key_literal(tag), tag_bytes(tag));
        let bit = Literal::u64_unsuffixed(1 << index);
        let read = read(declaration, field);
        quote! {
            if at.may_have_key::<#bytes>(#key) {
                if !at.has_rest_of_key::<#bytes>() {
                    break 'declared;
                }
                #seen |= #bit;
                #read
                #then
            }
        }
    };
    let mut text = TokenStream::new();
    let mut index = 0;
    while let Some(field) = fields.get(index) {
        let run = fields.iter().skip(index).take_while(|field| !field.is_required).count();
        if run < RUN {
            text.extend(read_if_next(index, field, &quote!()));
            index += 1;
            continue;
        }
        let is_over = match fields.get(index + run).or(behind) {
            Some(field) => has_tag(field.first_tag()),
            None => quote!(!at.is_field()),
        };
        let leave = quote! { if #is_over { break 'run; } };
        let each = fields.iter().enumerate().skip(index).take(run);
        let each = each.map(|(index, field)| read_if_next(index, field, &leave));
        text.extend(quote! { 'run: { #leave #(#each)* } });
        index += run;
    }
    text
}

/// Returns a match arm for each tag of a structure's fields: the tag's slot, the check of its key and bit, and the value.
fn arms(
    declaration: &Declaration,
    fields: &[Field],
    slots: &Slots,
    first_bit: usize,
    seen: &Ident,
    before: &TokenStream,
    twice: &TokenStream,
) -> Vec<TokenStream> {
    let mut arms = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let (slot, key) = (slots.slot(field.first_tag()), key_literal(field.first_tag()));
        let bit = Literal::u64_unsuffixed(1 << (first_bit + index));
        let read = read(declaration, field);
        arms.push(quote! {
            #slot if at.key() == #key => {
                #before
                if #seen & #bit != 0 { #twice }
                #seen |= #bit;
                #read
            }
        });
        if let Type::Data(length_tag) = field.field_type {
            let (slot, key) = (slots.slot(field.tag), key_literal(field.tag));
            let length_tag = Literal::u32_unsuffixed(length_tag);
            arms.push(quote! { #slot if at.key() == #key => return Err(at.missing(#length_tag)), });
        }
    }
    arms
}

/// Returns the bits of the required fields, and the tag of each bit.
fn required(fields: &[Field], seen: &Ident) -> TokenStream {
    let bits = |field: &Field| {
        fields.iter().position(|other| other.tag == field.tag).map_or(0, |index| 1u64 << index)
    };
    let wanted: Vec<&Field> = fields.iter().filter(|field| field.is_required).collect();
    let all = Literal::u64_unsuffixed(wanted.iter().map(|field| bits(field)).fold(0, |all, bit| all | bit));
    let each = wanted.iter().map(|field| {
        let (bit, tag) = (Literal::u64_unsuffixed(bits(field)), Literal::u32_unsuffixed(field.tag));
        quote! { if #seen & #bit == 0 { return Err(at.missing(#tag)); } }
    });
    if wanted.is_empty() {
        return quote!();
    }
    quote! { if #seen & #all != #all { #(#each)* } }
}

/// Returns the bit of each field, with its tag.
fn set_bits(fields: &[Field], first_bit: usize) -> Vec<TokenStream> {
    let each = fields.iter().enumerate().map(|(index, field)| {
        let (tag, bit) =
            (Literal::u32_unsuffixed(field.tag), Literal::u64_unsuffixed(1 << (first_bit + index)));
        quote! { #tag => #bit, }
    });
    each.collect()
}

/// Returns the accessors of a view's fields.
fn accessors(declaration: &Declaration, fields: &[Field], first_bit: usize, seen: &Ident) -> TokenStream {
    let each = fields.iter().enumerate().map(|(index, field)| {
        let name = &field.name;
        let public = public(field, declaration, false);
        let bit = Literal::u64_unsuffixed(1 << (first_bit + index));
        let value = match &field.field_type {
            Type::Text | Type::Data(_) => quote!(self.#name.of(self.message)),
            Type::Decimal(_) => quote!(::tapeworks_wire::Decimal(self.#name)),
            Type::Timestamp => quote!(::tapeworks_wire::NanosecondsSinceEpoch(self.#name)),
            Type::Time => quote!(::tapeworks_wire::NanosecondsSinceMidnight(self.#name)),
            Type::Group(_) => quote!(::tapeworks_fix_wire::Entries::new(self.#name, self.message)),
            _ => quote!(self.#name),
        };
        let doc = field_doc(field);
        // An absent group has no entries.
        let (result, body) = match (&field.field_type, field.is_required) {
            (Type::Group(_), _) => {
                let none = quote!(::tapeworks_fix_wire::Entries::new(
                    ::tapeworks_fix_wire::GroupSpan::NONE,
                    self.message
                ));
                (public, quote!(if self.#seen & #bit != 0 { #value } else { #none }))
            }
            (_, true) => (public, value),
            (_, false) => {
                (quote!(Option<#public>), quote!(if self.#seen & #bit != 0 { Some(#value) } else { None }))
            }
        };
        quote! { #doc #[inline] #[must_use] pub fn #name(&self) -> #result { #body } }
    });
    quote! { #(#each)* }
}

fn field_doc(field: &Field) -> TokenStream {
    let (title, tag) = (field.title(), field.tag);
    let unit = match field.field_type {
        Type::Date => " Days since 1970.",
        _ => "",
    };
    let need = if field.is_required { "required" } else { "optional" };
    doc(&field.doc, &format!("{title} ({tag}), {need}.{unit}"))
}

// ---- groups ----------------------------------------------------------------------------------------------

fn group(declaration: &Declaration, item: &Structure) -> TokenStream {
    let name = &item.name;
    let seen = format_ident!("seen");
    let tags: Vec<u32> = item.fields.iter().flat_map(tags_of).collect();
    let slots = Slots::find(&tags);
    let slot = slots.expression();
    let twice = quote! { return Err(at.rejected(::tapeworks_fix_wire::RejectReason::TagTwice)); };
    let mut arms = arms(declaration, &item.fields, &slots, 0, &seen, &quote!(), &twice);
    // The first field starts the next entry.
    let delimiter = item.fields.first().map_or(0, |field| field.tag);
    let (delimiter_slot, delimiter_key) = (slots.slot(delimiter), key_literal(delimiter));
    arms.insert(0, quote! { #delimiter_slot if at.key() == #delimiter_key && seen != 0 => break, });
    let members = item.fields.iter().skip(1).map(|field| key_literal(field.first_tag()));
    let members = quote! { [#(#members),*] };
    let required = required(&item.fields, &seen);
    let names = item.fields.iter().map(|field| &field.name);
    let types = item.fields.iter().map(stored);
    let accessors = accessors(declaration, &item.fields, 0, &seen);
    let doc = doc(&item.doc, &format!("An entry of a repeating group, which begins with tag {delimiter}."));
    quote! {
        #doc
        #[derive(Clone, Copy)]
        pub struct #name<'a> {
            message: &'a [u8],
            seen: u64,
            #(#names: #types,)*
        }

        impl<'a> ::tapeworks_fix_wire::Entry<'a> for #name<'a> {
            fn read_at(
                at: ::tapeworks_fix_wire::Cursor<'a>,
                last: &mut ::tapeworks_fix_wire::LastTimestamp,
                count_tag: u32,
            ) -> Result<(Self, ::tapeworks_fix_wire::Cursor<'a>), ::tapeworks_fix_wire::ReadError>
            {
                let mut view = Self::absent(at.message());
                let mut at = at;
                let mut seen = 0u64;
                if at.key() != #delimiter_key {
                    let members: &[u64] = &#members;
                    return Err(if members.contains(&at.key()) {
                        at.rejected(::tapeworks_fix_wire::RejectReason::GroupOutOfOrder)
                    } else {
                        at.wrong_count(count_tag)
                    });
                }
                #[allow(unreachable_patterns, clippy::match_same_arms)]
                while at.is_field() {
                    match #slot {
                        #(#arms)*
                        _ => break,
                    }
                }
                #required
                view.seen = seen;
                Ok((view, at))
            }
        }
    }
    .into_iter()
    .chain(view_impl(declaration, item, &accessors, &[]))
    .collect()
}

/// Returns the part of a view that does not depend on the fields, with its accessors.
fn view_impl(
    declaration: &Declaration,
    item: &Structure,
    accessors: &TokenStream,
    more: &[&Field],
) -> TokenStream {
    let name = &item.name;
    let all = || item.fields.iter().chain(more.iter().copied());
    let (names, values) = (all().map(|field| &field.name), all().map(|field| absent(declaration, field)));
    let seen_header = (item.role == Role::Message).then(|| quote!(seen_header: 0, has_undeclared: false,));
    let (begin, fields) = (item.role != Role::Group)
        .then(|| {
            (
                quote! {
                    /// Returns BeginString (8): `FIX.4.4`.
                    #[must_use]
                    pub fn begin_string(&self) -> &'a [u8] {
                        ::tapeworks_fix_wire::begin_string(self.message)
                    }

                    /// Returns the bytes of the message.
                    #[must_use]
                    pub const fn as_bytes(&self) -> &'a [u8] {
                        self.message
                    }
                },
                quote! {
                    /// Returns the value of the first field with this tag, declared or not.
                    #[must_use]
                    pub fn field(&self, tag: u32) -> Option<&'a [u8]> {
                        ::tapeworks_fix_wire::field(self.message, tag)
                    }
                },
            )
        })
        .unzip();
    quote! {
        impl<'a> #name<'a> {
            /// Returns a view without fields. It is zeroed in place, because a constant would be copied.
            #[inline(always)]
            fn absent(message: &'a [u8]) -> Self {
                Self { message, #seen_header seen: 0, #(#names: #values,)* }
            }

            #begin
            #fields
            #accessors
        }

        impl core::fmt::Debug for #name<'_> {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                ::tapeworks_fix_wire::write_fields(formatter, stringify!(#name), self.message)
            }
        }
    }
}

// ---- messages --------------------------------------------------------------------------------------------

/// Collects the tags of a group's entries, including nested groups, each with the tag of its count.
fn member_tags(declaration: &Declaration, field: &Field, found: &mut Vec<(u32, u32)>) {
    let Type::Group(entry) = &field.field_type else { return };
    for member in declaration.group(entry).map_or(&[][..], |group| group.fields.as_slice()) {
        found.extend(tags_of(member).map(|tag| (tag, field.tag)));
        member_tags(declaration, member, found);
    }
}

fn message(declaration: &Declaration, item: &Structure) -> TokenStream {
    let name = &item.name;
    let (seen, seen_header) = (format_ident!("seen"), format_ident!("seen_header"));
    let header = declaration.fields_of(Role::Header);
    let trailer = declaration.fields_of(Role::Trailer);
    let mut tags: Vec<u32> = header.iter().chain(&item.fields).chain(trailer).flat_map(tags_of).collect();
    let mut members = Vec::new();
    item.fields.iter().for_each(|field| member_tags(declaration, field, &mut members));
    members.retain(|(tag, _)| !tags.contains(tag));
    members.sort_unstable();
    members.dedup_by_key(|(tag, _)| *tag);
    tags.extend(members.iter().map(|(tag, _)| *tag));
    tags.extend([8, 9, 10, 35]);
    let slots = Slots::find(&tags);
    let slot = slots.expression();
    let twice = quote! { return Err(at.rejected(::tapeworks_fix_wire::RejectReason::TagTwice)); };
    let out_of_order = quote! { return Err(at.rejected(::tapeworks_fix_wire::RejectReason::TagOutOfOrder)); };
    let header_before = quote! { if seen != 0 { #out_of_order } };
    let mut arms_of_all = arms(declaration, header, &slots, 0, &seen_header, &header_before, &twice);
    arms_of_all.extend(arms(declaration, &item.fields, &slots, 0, &seen, &quote!(), &twice));
    let trailer_arms = arms(declaration, trailer, &slots, item.fields.len(), &seen, &quote!(), &twice);
    arms_of_all.extend(trailer_arms);
    // Only the checksum follows the trailer's only field.
    let after_trailer = trailer.first().map(|_| {
        let bit = Literal::u64_unsuffixed(1 << item.fields.len());
        quote! { if seen & #bit != 0 && at.is_field() { #out_of_order } }
    });
    arms_of_all.extend(members.iter().map(|(tag, count_tag)| {
        let (slot, key, count_tag) =
            (slots.slot(*tag), key_literal(*tag), Literal::u32_unsuffixed(*count_tag));
        quote! { #slot if at.key() == #key => return Err(at.wrong_count(#count_tag)), }
    }));
    arms_of_all.extend([8, 9, 10, 35].map(|tag| {
        let (slot, key) = (slots.slot(tag), key_literal(tag));
        quote! { #slot if at.key() == #key => { #twice } }
    }));
    let first_required = item.fields.iter().find(|field| field.is_required);
    let declared_header = in_declared_order(declaration, header, &seen_header, first_required);
    let declared_body = in_declared_order(declaration, &item.fields, &seen, None);
    let required_header = required(header, &seen_header);
    let required_body = required(&item.fields, &seen);
    let accessors_header = accessors(declaration, header, 0, &seen_header);
    let mut body_accessors = accessors(declaration, &item.fields, 0, &seen);
    body_accessors.extend(accessors(declaration, trailer, item.fields.len(), &seen));
    let more: Vec<&Field> = header.iter().chain(trailer).collect();
    let all = || item.fields.iter().chain(more.iter().copied());
    let names = all().map(|field| &field.name);
    let types = all().map(stored);
    let message_type = item.message_type_text();
    let type_bytes = Literal::byte_string(message_type.as_bytes());
    let header_bits = set_bits(header, 0);
    let mut body_bits = set_bits(&item.fields, 0);
    body_bits.extend(set_bits(trailer, item.fields.len()));
    let (type_key, type_key_bytes) = type_key(&message_type);
    let doc = doc(&item.doc, &format!("MsgType (35) is `{message_type}`."));
    let view = view_impl(declaration, item, &quote! { #accessors_header #body_accessors }, &more);
    quote! {
        #doc
        #[derive(Clone, Copy)]
        pub struct #name<'a> {
            message: &'a [u8],
            seen_header: u64,
            seen: u64,
            has_undeclared: bool,
            #(#names: #types,)*
        }

        impl<'a> #name<'a> {
            /// MsgType (35).
            pub const MESSAGE_TYPE: &'static [u8] = #type_bytes;

            /// Builds a set of the fields with these tags, for [`has_only`](Self::has_only). Undeclared tags are left out.
            #[must_use]
            pub const fn fields(tags: &[u32]) -> ::tapeworks_fix_wire::FieldSet {
                let (mut header, mut body) = (0u64, 0u64);
                let mut rest = tags;
                while let [tag, behind @ ..] = rest {
                    header |= match *tag { #(#header_bits)* _ => 0 };
                    body |= match *tag { #(#body_bits)* _ => 0 };
                    rest = behind;
                }
                ::tapeworks_fix_wire::FieldSet { header, body }
            }

            /// Returns whether the message has no fields except these and 8, 9, 35 and 10. A group is identified by the tag of its count.
            #[inline]
            #[must_use]
            pub const fn has_only(&self, fields: ::tapeworks_fix_wire::FieldSet) -> bool {
                !self.has_undeclared && self.seen_header & !fields.header | self.seen & !fields.body == 0
            }

            /// Reads a message and checks its length, its checksum, every declared field and its type, required fields, groups and
            /// their counts, the order of header, body and trailer, and that no declared tag is repeated.
            ///
            /// # Errors
            /// The bytes are not one message of this type, or it breaks a rule.
            #[inline(always)]
            pub fn read(message: &'a [u8]) -> Result<Self, ::tapeworks_fix_wire::ReadError> {
                let mut view = Self::unread();
                match view.read_into(message) {
                    Ok(()) => Ok(view),
                    Err(error) => Err(error),
                }
            }

            /// Returns a view of no message, for [`read_into`](Self::read_into).
            #[inline(always)]
            #[must_use]
            pub fn unread() -> Self {
                Self::absent(&[])
            }

            /// Does the same as [`read`](Self::read), but into an existing view: a view is a few hundred bytes, and moving it costs
            /// more than reading some fields. After an error the view is empty.
            ///
            /// # Errors
            /// Same as [`read`](Self::read).
            pub fn read_into(&mut self, message: &'a [u8]) -> Result<(), ::tapeworks_fix_wire::ReadError> {
                self.read_into_behind(message, &mut ::tapeworks_fix_wire::LastTimestamp::default())
            }

            /// Does the same as [`read_into`](Self::read_into), but reuses the last timestamp, because most share their date.
            ///
            /// # Errors
            /// Same as [`read`](Self::read).
            pub fn read_into_behind(
                &mut self,
                message: &'a [u8],
                last: &mut ::tapeworks_fix_wire::LastTimestamp,
            ) -> Result<(), ::tapeworks_fix_wire::ReadError> {
                // Values of an earlier message may remain: a field whose bit is unset is absent.
                (self.message, self.seen_header, self.seen) = (&[], 0, 0);
                let at = ::tapeworks_fix_wire::Cursor::open(message)?;
                if !at.has_key::<#type_key_bytes>(#type_key) {
                    return Err(::tapeworks_fix_wire::ReadError::OtherType);
                }
                self.read_declared(message, at.end_of_type(#type_key_bytes) + 1, at.limit(), last)
            }

            /// Reads a message that is already split, so its length and checksum are not checked again.
            ///
            /// # Errors
            /// The message has another type, or it breaks a rule.
            #[inline(always)]
            pub fn read_parsed(
                message: &::tapeworks_fix_wire::Parsed<'a>,
            ) -> Result<Self, ::tapeworks_fix_wire::ReadError> {
                let mut view = Self::unread();
                view.read_parsed_into(message, &mut ::tapeworks_fix_wire::LastTimestamp::default())?;
                Ok(view)
            }

            /// Does the same as [`read_parsed`](Self::read_parsed), but into an existing view, and reuses the last timestamp.
            ///
            /// # Errors
            /// The message has another type, or it breaks a rule.
            pub fn read_parsed_into(
                &mut self,
                message: &::tapeworks_fix_wire::Parsed<'a>,
                last: &mut ::tapeworks_fix_wire::LastTimestamp,
            ) -> Result<(), ::tapeworks_fix_wire::ReadError> {
                (self.message, self.seen_header, self.seen) = (&[], 0, 0);
                if message.message_type() != Self::MESSAGE_TYPE {
                    return Err(::tapeworks_fix_wire::ReadError::OtherType);
                }
                let (start, limit) = message.body();
                self.read_declared(message.bytes(), start, limit, last)
            }

            /// Reads the fields in the declared order, and leaves the rest to `read_any` at the first field out of order.
            #[inline(never)]
            fn read_declared(
                &mut self,
                message: &'a [u8],
                start: u32,
                limit: u32,
                last: &mut ::tapeworks_fix_wire::LastTimestamp,
            ) -> Result<(), ::tapeworks_fix_wire::ReadError> {
                let view = self;
                let mut at = ::tapeworks_fix_wire::Cursor::over(message, start, limit);
                let (mut seen_header, mut seen) = (0u64, 0u64);
                'declared: {
                    #declared_header
                    #declared_body
                }
                if at.is_field() {
                    return view.read_any(at, seen_header, seen, last);
                }
                #required_header
                #required_body
                view.message = at.message();
                view.seen_header = seen_header;
                view.seen = seen;
                view.has_undeclared = false;
                Ok(())
            }

            /// Reads the remaining fields in any order.
            #[inline(never)]
            fn read_any(
                &mut self,
                at: ::tapeworks_fix_wire::Cursor<'a>,
                seen_header: u64,
                seen: u64,
                last: &mut ::tapeworks_fix_wire::LastTimestamp,
            ) -> Result<(), ::tapeworks_fix_wire::ReadError> {
                let view = self;
                let mut at = at;
                let (mut seen_header, mut seen) = (seen_header, seen);
                let mut has_undeclared = false;
                while at.is_field() {
                    #[allow(clippy::match_same_arms)]
                    match #slot {
                        #(#arms_of_all)*
                        _ => {
                            has_undeclared = true;
                            at = at.undeclared()?;
                        }
                    }
                    #after_trailer
                }
                #required_header
                #required_body
                view.message = at.message();
                view.seen_header = seen_header;
                view.seen = seen;
                view.has_undeclared = has_undeclared;
                Ok(())
            }
        }

        #view
    }
}

fn header(declaration: &Declaration) -> TokenStream {
    let Some(item) = declaration.of_role(Role::Header).next() else { return quote!() };
    let seen = format_ident!("seen");
    let tags: Vec<u32> = item.fields.iter().flat_map(tags_of).collect();
    let slots = Slots::find(&tags);
    let slot = slots.expression();
    let twice = quote! { return Err(at.rejected(::tapeworks_fix_wire::RejectReason::TagTwice)); };
    let arms = arms(declaration, &item.fields, &slots, 0, &seen, &quote!(), &twice);
    let required = required(&item.fields, &seen);
    let names = item.fields.iter().map(|field| &field.name);
    let types = item.fields.iter().map(stored);
    let accessors = accessors(declaration, &item.fields, 0, &seen);
    let view = view_impl(declaration, item, &accessors, &[]);
    let doc = doc(&item.doc, "The header of a message of any type. Fields after it are not read.");
    quote! {
        #doc
        #[derive(Clone, Copy)]
        pub struct Header<'a> {
            message: &'a [u8],
            seen: u64,
            #(#names: #types,)*
        }

        impl<'a> Header<'a> {
            /// Reads the header of a message up to the first field that is not part of it, and checks the message's length and checksum.
            ///
            /// # Errors
            /// The bytes are not one message, or the header breaks a rule.
            pub fn read(message: &'a [u8]) -> Result<Self, ::tapeworks_fix_wire::ReadError> {
                let mut at = ::tapeworks_fix_wire::Cursor::open(message)?.next();
                let last = &mut ::tapeworks_fix_wire::LastTimestamp::default();
                let mut view = Self::absent(message);
                let mut seen = 0u64;
                while at.is_field() {
                    match #slot {
                        #(#arms)*
                        _ => break,
                    }
                }
                #required
                view.seen = seen;
                Ok(view)
            }

            /// Returns MsgType (35).
            #[must_use]
            pub fn message_type(&self) -> &'a [u8] {
                ::tapeworks_fix_wire::message_type(self.message)
            }
        }

        #view
    }
}

fn message_enum(declaration: &Declaration) -> TokenStream {
    let names: Vec<&Ident> = declaration.of_role(Role::Message).map(|item| &item.name).collect();
    let docs = names.iter().map(|name| doc("", &format!("See [`{name}`].")));
    let (keys, key_bytes): (Vec<Literal>, Vec<Literal>) =
        declaration.of_role(Role::Message).map(|item| type_key(&item.message_type_text())).unzip();
    quote! {
        /// Any message of the declaration.
        #[derive(Clone, Copy, Debug)]
        #[allow(clippy::large_enum_variant)]
        pub enum Message<'a> {
            #(#docs #names(#names<'a>),)*
        }

        impl<'a> Message<'a> {
            /// Reads a message of any declared type, with the checks of that type's `read`.
            ///
            /// # Errors
            /// The bytes are not one message, its type is not declared, or it breaks a rule.
            #[inline]
            pub fn read(message: &'a [u8]) -> Result<Self, ::tapeworks_fix_wire::ReadError> {
                let at = ::tapeworks_fix_wire::Cursor::open(message)?;
                let last = &mut ::tapeworks_fix_wire::LastTimestamp::default();
                #(if at.has_key::<#key_bytes>(#keys) {
                    let mut read = Ok(Self::#names(#names::absent(message)));
                    if let Ok(Self::#names(view)) = &mut read
                        && let Err(error) = view.read_declared(message, at.end_of_type(#key_bytes) + 1, at.limit(), last)
                    {
                        read = Err(error);
                    }
                    return read;
                })*
                Err(::tapeworks_fix_wire::ReadError::OtherType)
            }

            /// Returns the message's name in the declaration.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { #(Self::#names(_) => stringify!(#names),)* }
            }

            /// Returns MsgType (35).
            #[must_use]
            pub const fn message_type(&self) -> &'static [u8] {
                match self { #(Self::#names(_) => #names::MESSAGE_TYPE,)* }
            }
        }
    }
}

// ---- plain forms -----------------------------------------------------------------------------------------

fn plain(declaration: &Declaration, item: &Structure) -> TokenStream {
    if item.role == Role::Trailer {
        return quote!();
    }
    let name = &item.name;
    let plain = format_ident!("{name}Fields");
    let lifetime = declaration.borrows(item).then(|| quote!(<'a>));
    let fields = item.fields.iter().map(|field| {
        let (name, public, doc) = (&field.name, public(field, declaration, true), field_doc(field));
        let is_plain = field.is_required || matches!(field.field_type, Type::Group(_));
        let wrapped = if is_plain { public } else { quote!(Option<#public>) };
        quote! { #doc pub #name: #wrapped }
    });
    let wanted: Vec<&Field> = item
        .fields
        .iter()
        .filter(|field| field.is_required && !matches!(field.field_type, Type::Group(_)))
        .collect();
    let arguments = wanted.iter().map(|field| {
        let (name, public) = (&field.name, public(field, declaration, true));
        quote! { #name: #public }
    });
    let initial = item.fields.iter().map(|field| {
        let name = &field.name;
        match (&field.field_type, field.is_required) {
            (Type::Group(_), _) => quote! { #name: &[] },
            (_, true) => quote! { #name },
            (_, false) => quote! { #name: None },
        }
    });
    let writes = item.fields.iter().map(|field| {
        let (name, tag) = (&field.name, Literal::u32_unsuffixed(field.tag));
        let value = if field.is_required { quote!(self.#name) } else { quote!(value) };
        let write = match &field.field_type {
            Type::Text => quote! { writer.text(#tag, #value); },
            Type::Character => quote! { writer.character(#tag, #value); },
            Type::Signed => quote! { writer.signed(#tag, #value); },
            Type::Unsigned => quote! { writer.number(#tag, #value); },
            Type::Decimal(places) => {
                let places = Literal::u8_unsuffixed(*places);
                quote! { writer.decimal::<#places>(#tag, #value.0); }
            }
            Type::Timestamp => quote! { writer.timestamp(#tag, #value.0); },
            Type::Time => quote! { writer.time(#tag, #value.0); },
            Type::Date => quote! { writer.date(#tag, #value); },
            Type::Flag => quote! { writer.flag(#tag, #value); },
            Type::Data(length_tag) => {
                let length_tag = Literal::u32_unsuffixed(*length_tag);
                quote! { writer.data(#length_tag, #tag, #value); }
            }
            Type::Group(_) => {
                return quote! {
                    if !self.#name.is_empty() {
                        writer.number(#tag, self.#name.len() as u64);
                        // A separate writer, because the address of this one escapes.
                        let mut entries = writer.local();
                        self.#name.iter().for_each(|entry| entry.write(&mut entries));
                        let place = entries.place_and_fault();
                        writer.resume(place);
                    }
                };
            }
            Type::Named(enum_name) => {
                let item = declaration.enumeration(enum_name);
                if item.is_some_and(|item| item.enum_type == EnumType::Character) {
                    quote! { writer.character(#tag, #value.raw()); }
                } else {
                    quote! { writer.number(#tag, u64::from(#value.raw())); }
                }
            }
        };
        if field.is_required {
            write
        } else {
            quote! { if let Some(value) = self.#name { #write } }
        }
    });
    let text = lines(&format!("The plain values of `{name}`, for writing."));
    let is_all_optional = wanted.is_empty().then(|| quote!(#[derive(Default)]));
    quote! {
        #text
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #is_all_optional
        pub struct #plain #lifetime { #(#fields,)* }

        impl #lifetime #plain #lifetime {
            /// Creates the message with its required fields; the others are absent.
            #[allow(clippy::too_many_arguments)]
            #[inline]
            #[must_use]
            pub const fn new(#(#arguments),*) -> Self {
                Self { #(#initial,)* }
            }

            /// Writes the fields in the declared order, after the fields already written.
            // Inline, so that the compiler sees which fields are absent and omits their code.
            #[inline(always)]
            pub fn write(&self, writer: &mut ::tapeworks_fix_wire::Writer<'_>) {
                let mut local = writer.local();
                {
                    let writer = &mut local;
                    #(#writes)*
                }
                let place = local.place_and_fault();
                writer.resume(place);
            }
        }
    }
}
