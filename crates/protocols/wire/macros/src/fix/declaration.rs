//! The declaration of FIX messages as a tree.

use proc_macro2::{Ident, Span};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Lit, LitChar, LitInt, LitStr, Result, Token, braced};

use crate::declaration::{comma_separated, doc_text, field_name};

/// The type of a field as written.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Text,
    Character,
    Signed,
    Unsigned,
    Decimal(u8),
    Timestamp,
    Date,
    Time,
    Flag,
    /// Data that follows the field with this tag, which holds its length.
    Data(u32),
    /// As many entries as the field's value says.
    Group(Ident),
    /// An enum of the declaration.
    Named(Ident),
}

pub(crate) struct Field {
    pub(crate) doc: String,
    pub(crate) is_required: bool,
    pub(crate) name: Ident,
    /// The standard's name, if it cannot be derived from the field name.
    pub(crate) title: Option<String>,
    pub(crate) tag: u32,
    pub(crate) tag_span: Span,
    pub(crate) field_type: Type,
    pub(crate) type_span: Span,
}

impl Field {
    /// Returns the tag that comes first on the wire: for data, the tag of its length.
    pub(crate) fn first_tag(&self) -> u32 {
        match self.field_type {
            Type::Data(length_tag) => length_tag,
            _ => self.tag,
        }
    }

    /// Returns the standard's name: ClOrdID for `cl_ord_id`.
    pub(crate) fn title(&self) -> String {
        if let Some(title) = &self.title {
            return title.clone();
        }
        let name = self.name.to_string();
        name.split('_')
            .map(|word| match word {
                "id" => "ID".to_owned(),
                "url" => "URL".to_owned(),
                word => {
                    let mut letters = word.chars();
                    letters
                        .next()
                        .map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
                }
            })
            .collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Header,
    Trailer,
    Group,
    Message,
}

/// A message, a group entry, the header or the trailer.
pub(crate) struct Structure {
    pub(crate) doc: String,
    pub(crate) role: Role,
    pub(crate) name: Ident,
    pub(crate) message_type: Option<LitStr>,
    pub(crate) fields: Vec<Field>,
}

impl Structure {
    /// Returns MsgType (35); empty if the structure is not a message.
    pub(crate) fn message_type_text(&self) -> String {
        self.message_type.as_ref().map_or(String::new(), LitStr::value)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnumType {
    Character,
    Integer,
}

pub(crate) struct Variant {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) raw: u64,
    pub(crate) raw_span: Span,
}

pub(crate) struct Enumeration {
    pub(crate) doc: String,
    pub(crate) name: Ident,
    pub(crate) enum_type: EnumType,
    pub(crate) variants: Vec<Variant>,
}

pub(crate) struct Declaration {
    pub(crate) doc: String,
    pub(crate) name: LitStr,
    pub(crate) title: String,
    pub(crate) versions: String,
    pub(crate) enums: Vec<Enumeration>,
    pub(crate) structures: Vec<Structure>,
}

impl Declaration {
    pub(crate) fn enumeration(&self, name: &Ident) -> Option<&Enumeration> {
        self.enums.iter().find(|item| item.name == *name)
    }

    pub(crate) fn group(&self, name: &Ident) -> Option<&Structure> {
        self.structures.iter().find(|item| item.role == Role::Group && item.name == *name)
    }

    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = &Structure> {
        self.structures.iter().filter(move |item| item.role == role)
    }

    /// Returns the fields of the header or trailer.
    pub(crate) fn fields_of(&self, role: Role) -> &[Field] {
        self.of_role(role).next().map_or(&[], |item| item.fields.as_slice())
    }

    /// Returns whether the plain values of a structure borrow anything.
    pub(crate) fn borrows(&self, structure: &Structure) -> bool {
        structure
            .fields
            .iter()
            .any(|field| matches!(field.field_type, Type::Text | Type::Data(_) | Type::Group(_)))
    }
}

fn tag_number(input: ParseStream) -> Result<(u32, Span)> {
    let literal: LitInt = input.parse()?;
    let tag: u32 = literal.base10_parse()?;
    if tag == 0 || tag > 9_999_999 {
        return Err(Error::new(literal.span(), "a tag is a number from 1 to 9999999"));
    }
    Ok((tag, literal.span()))
}

fn field_type(input: ParseStream) -> Result<Type> {
    let name: Ident = input.parse()?;
    let in_brackets = |input: ParseStream| -> Result<()> { input.parse::<Token![<]>().map(|_| ()) };
    Ok(match name.to_string().as_str() {
        "text" => Type::Text,
        "char" => Type::Character,
        "int" => Type::Signed,
        "number" => Type::Unsigned,
        "timestamp" => Type::Timestamp,
        "date" => Type::Date,
        "time" => Type::Time,
        "flag" => Type::Flag,
        "decimal" => {
            in_brackets(input)?;
            let places: LitInt = input.parse()?;
            input.parse::<Token![>]>()?;
            match places.base10_parse()? {
                count @ 0..=10 => Type::Decimal(count),
                _ => return Err(Error::new(places.span(), "a decimal keeps at most 10 places")),
            }
        }
        "data" => {
            in_brackets(input)?;
            let (length_tag, _) = tag_number(input)?;
            input.parse::<Token![>]>()?;
            Type::Data(length_tag)
        }
        "group" => {
            in_brackets(input)?;
            let entry = input.parse()?;
            input.parse::<Token![>]>()?;
            Type::Group(entry)
        }
        _ => Type::Named(name),
    })
}

fn field(input: ParseStream) -> Result<Field> {
    let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
    let mut name = field_name(input)?;
    let mut is_required = false;
    if name == "required" && input.peek(syn::Ident) {
        is_required = true;
        name = field_name(input)?;
    }
    let title = input.parse::<Option<LitStr>>()?.map(|title| title.value());
    input.parse::<Token![:]>()?;
    let (tag, tag_span) = tag_number(input)?;
    let type_span = input.span();
    let field_type = field_type(input)?;
    Ok(Field { doc, is_required, name, title, tag, tag_span, field_type, type_span })
}

fn enumeration(input: ParseStream, doc: String) -> Result<Enumeration> {
    let name: Ident = input.parse()?;
    input.parse::<Token![:]>()?;
    let base: Ident = input.parse()?;
    let enum_type = match base.to_string().as_str() {
        "char" => EnumType::Character,
        "int" => EnumType::Integer,
        _ => return Err(Error::new(base.span(), "an enum is `char` or `int`")),
    };
    let content;
    braced!(content in input);
    let variants = comma_separated(&content, |input| {
        let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let raw_span = input.span();
        let raw = match enum_type {
            EnumType::Character => {
                let character = input.parse::<LitChar>()?.value();
                if !character.is_ascii_graphic() {
                    return Err(Error::new(
                        raw_span,
                        "the value of a `char` enum is a printable ASCII character",
                    ));
                }
                u64::from(u32::from(character))
            }
            EnumType::Integer => match input.parse::<Lit>()? {
                Lit::Int(number) => number.base10_parse::<u32>()?.into(),
                _ => return Err(Error::new(raw_span, "the value of an `int` enum is a number")),
            },
        };
        Ok(Variant { doc, name, raw, raw_span })
    })?;
    Ok(Enumeration { doc, name, enum_type, variants })
}

fn fields(input: ParseStream) -> Result<Vec<Field>> {
    let content;
    braced!(content in input);
    comma_separated(&content, field)
}

impl Parse for Declaration {
    fn parse(input: ParseStream) -> Result<Self> {
        let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
        let word: Ident = input.parse()?;
        if word != "fix" {
            return Err(Error::new(word.span(), "expected `fix \"name\" { .. }` first"));
        }
        let name: LitStr = input.parse()?;
        let content;
        braced!(content in input);
        let (mut title, mut versions) = (None, None);
        for (key, value) in comma_separated(&content, |input| {
            let key: Ident = input.parse()?;
            input.parse::<Token![:]>()?;
            Ok((key, input.parse::<LitStr>()?.value()))
        })? {
            match key.to_string().as_str() {
                "title" => title = Some(value),
                "versions" => versions = Some(value),
                _ => return Err(Error::new(key.span(), "expected `title` or `versions`")),
            }
        }
        let missing =
            |key: &str| Error::new(name.span(), format!("the declaration does not say its `{key}`"));
        let mut declaration = Declaration {
            doc,
            title: title.ok_or_else(|| missing("title"))?,
            versions: versions.ok_or_else(|| missing("versions"))?,
            name,
            enums: Vec::new(),
            structures: Vec::new(),
        };
        while !input.is_empty() {
            let doc = doc_text(&input.call(Attribute::parse_outer)?)?;
            if input.parse::<Option<Token![enum]>>()?.is_some() {
                declaration.enums.push(enumeration(input, doc)?);
                continue;
            }
            let word: Ident = input.parse()?;
            let (role, name) = match word.to_string().as_str() {
                "header" => (Role::Header, Ident::new("Header", word.span())),
                "trailer" => (Role::Trailer, Ident::new("Trailer", word.span())),
                "group" => (Role::Group, input.parse()?),
                "message" => (Role::Message, input.parse()?),
                _ => {
                    let text = "expected `enum`, `group`, `header`, `trailer` or `message`";
                    return Err(Error::new(word.span(), text));
                }
            };
            let message_type = if role == Role::Message {
                input.parse::<Token![=]>()?;
                Some(input.parse::<LitStr>()?)
            } else {
                None
            };
            let fields = fields(input)?;
            declaration.structures.push(Structure { doc, role, name, message_type, fields });
        }
        Ok(declaration)
    }
}
