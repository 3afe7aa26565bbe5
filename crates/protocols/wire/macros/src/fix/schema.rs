//! Generates the schema of a declaration of FIX messages.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::declaration::{Declaration, Field, Role, Structure, Type};
use crate::generate::words;

fn field(declaration: &Declaration, item: &Field) -> TokenStream {
    let kind = quote!(::tapeworks_fix_wire::FixKind);
    let field_kind = match &item.field_type {
        Type::Text => quote!(#kind::Text),
        Type::Character => quote!(#kind::Character),
        Type::Signed => quote!(#kind::Signed),
        Type::Unsigned => quote!(#kind::Unsigned),
        Type::Decimal(places) => {
            let places = Literal::u8_unsuffixed(*places);
            quote!(#kind::Decimal { places: #places })
        }
        Type::Timestamp => quote!(#kind::Timestamp),
        Type::Date => quote!(#kind::Date),
        Type::Time => quote!(#kind::Time),
        Type::Flag => quote!(#kind::Flag),
        Type::Data(length_tag) => {
            let length_tag = Literal::u32_unsuffixed(*length_tag);
            quote!(#kind::Data { length_tag: #length_tag })
        }
        Type::Group(entry) => {
            let entry = declaration.group(entry).map(|group| structure(declaration, group));
            quote!(#kind::Group(&#entry))
        }
        Type::Named(name) => quote!(#kind::Enum(&#name::SCHEMA)),
    };
    let (name, title, doc) = (item.name.to_string(), item.title(), &item.doc);
    let (tag, is_required) = (Literal::u32_unsuffixed(item.tag), item.is_required);
    quote! {
        ::tapeworks_fix_wire::FixField {
            name: #name, title: #title, doc: #doc, tag: #tag, is_required: #is_required, kind: #field_kind,
        }
    }
}

fn structure(declaration: &Declaration, item: &Structure) -> TokenStream {
    let (name, doc) = (item.name.to_string(), &item.doc);
    let title = words(&name);
    let message_type = item.message_type_text();
    let fields = item.fields.iter().map(|item| field(declaration, item));
    quote! {
        ::tapeworks_fix_wire::FixStructure {
            name: #name, title: #title, doc: #doc, message_type: #message_type, fields: &[#(#fields),*],
        }
    }
}

pub(crate) fn schema(declaration: &Declaration) -> TokenStream {
    let (name, title, versions, doc) =
        (declaration.name.value(), &declaration.title, &declaration.versions, &declaration.doc);
    let of_role = |role: Role| {
        let items = declaration.of_role(role).map(|item| structure(declaration, item));
        quote! { &[#(#items),*] }
    };
    let fields_of = |role: Role| {
        let items = declaration.fields_of(role).iter().map(|item| field(declaration, item));
        quote! { &[#(#items),*] }
    };
    let (header, trailer) = (fields_of(Role::Header), fields_of(Role::Trailer));
    let (groups, messages) = (of_role(Role::Group), of_role(Role::Message));
    let enums = declaration.enums.iter().map(|item| &item.name);
    quote! {
        /// The schema of this declaration.
        pub static SCHEMA: ::tapeworks_fix_wire::FixSchema = ::tapeworks_fix_wire::FixSchema {
            name: #name, title: #title, versions: #versions, doc: #doc, header: #header, trailer: #trailer,
            messages: #messages, groups: #groups, enums: &[#(#enums::SCHEMA),*],
        };
    }
}
