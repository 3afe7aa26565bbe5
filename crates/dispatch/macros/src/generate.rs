//! The Rust that a declaration becomes: two enums for states and kinds of events, one for events with their parameters,
//! the machine, and a function for each event, in the chosen form.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use tapeworks_dispatch_search::{PerfectHash, Width};

use crate::check::Plan;
use crate::declaration::{Declaration, Dispatch, Event};
use crate::diagram;

/// Names that the expansion makes of the machine's.
struct Names {
    state: Ident,
    event: Ident,
    kind: Ident,
}

pub(crate) fn generate(declaration: &Declaration, plan: &Plan) -> TokenStream {
    let name = &declaration.name;
    let names = Names {
        state: format_ident!("{name}State"),
        event: format_ident!("{name}Event"),
        kind: format_ident!("{name}EventKind"),
    };
    let types = types(declaration, &names);
    let functions =
        declaration.events.iter().enumerate().map(|(number, _)| on_event(declaration, plan, &names, number));
    let methods = methods(declaration, plan, &names);
    let dispatch = (!plan.coded.is_empty()).then(|| dispatch(declaration, plan, &names));
    quote! {
        #types
        #[allow(dead_code, unused_variables, clippy::all, clippy::pedantic)]
        const _: () = {
            #(#functions)*
            impl #name {
                #methods
                #dispatch
            }
        };
    }
}

/// The documentation that the author wrote, or ours.
fn documented(attributes: &[syn::Attribute], ours: &str) -> TokenStream {
    if attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
        quote!(#(#attributes)*)
    } else {
        quote!(#[doc = #ours] #(#attributes)*)
    }
}

fn types(declaration: &Declaration, names: &Names) -> TokenStream {
    let Declaration { visibility, name, attributes, state_attributes, event_attributes, .. } = declaration;
    let Names { state, event, kind } = names;
    let state_doc = documented(state_attributes, &format!("The states of [`{name}`]."));
    let event_doc = documented(event_attributes, &format!("What [`{name}`] takes."));
    let kind_doc = format!("The events of [`{name}`], without their parameters.");
    let machine_doc = documented(attributes, "A state machine.");
    let (state_names, event_names): (Vec<_>, Vec<_>) = (
        declaration.states.iter().map(|state| &state.name).collect(),
        declaration.events.iter().map(|event| &event.name).collect(),
    );
    let state_variants = declaration.states.iter().map(|state| {
        let doc = documented(&state.attributes, &format!("`{}`", state.name));
        let name = &state.name;
        quote!(#doc #name)
    });
    let kind_variants = declaration.events.iter().map(|event| {
        let (doc, name) = (format!("`{}`", event.name), &event.name);
        quote!(#[doc = #doc] #name)
    });
    let event_variants = declaration.events.iter().map(|event| {
        let doc = documented(&event.attributes, &format!("`{}`", event.name));
        let name = &event.name;
        let fields = event.parameters.iter().map(|parameter| {
            let (doc, name, of) = (format!("`{}`", parameter.name), &parameter.name, &parameter.of);
            quote!(#[doc = #doc] #name: #of)
        });
        if event.parameters.is_empty() { quote!(#doc #name) } else { quote!(#doc #name { #(#fields),* }) }
    });
    let lifetimes = lifetimes_of_events(declaration);
    quote! {
        #state_doc
        #[allow(dead_code)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #visibility enum #state { #(#state_variants),* }

        #[doc = #kind_doc]
        #[allow(dead_code)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #visibility enum #kind { #(#kind_variants),* }

        #event_doc
        #[allow(dead_code)]
        #visibility enum #event #lifetimes { #(#event_variants),* }

        #machine_doc
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #visibility struct #name { state: #state }

        impl ::core::fmt::Display for #state {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(match self { #(Self::#state_names => stringify!(#state_names)),* })
            }
        }

        impl ::core::fmt::Display for #kind {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(match self { #(Self::#event_names => stringify!(#event_names)),* })
            }
        }

        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self::new()
            }
        }
    }
}

/// `<'a, 'b>` of the declaration, as far as parameters name them.
fn lifetimes_of_events(declaration: &Declaration) -> TokenStream {
    let mut types = TokenStream::new();
    for parameter in declaration.events.iter().flat_map(|event| &event.parameters) {
        parameter.of.to_tokens(&mut types);
    }
    let named = names_after_quotes(types);
    let used = declaration.lifetimes.iter().filter(|lifetime| named.contains(&lifetime.ident.to_string()));
    angled(used)
}

fn angled<'d>(lifetimes: impl Iterator<Item = &'d syn::Lifetime>) -> TokenStream {
    let lifetimes: Vec<_> = lifetimes.collect();
    if lifetimes.is_empty() { TokenStream::new() } else { quote!(<#(#lifetimes),*>) }
}

/// Names of lifetimes in a stream, however deep.
fn names_after_quotes(tokens: TokenStream) -> Vec<String> {
    use proc_macro2::TokenTree;
    let mut names = Vec::new();
    let mut is_after_quote = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => names.extend(names_after_quotes(group.stream())),
            TokenTree::Ident(name) if is_after_quote => names.push(name.to_string()),
            TokenTree::Punct(punctuation) if punctuation.as_char() == '\'' => {
                is_after_quote = true;
                continue;
            }
            _ => {}
        }
        is_after_quote = false;
    }
    names
}

/// What the rows of a chain do, as an expression of the next state.
fn chain(declaration: &Declaration, names: &Names, event: &Event, rows: &[usize]) -> TokenStream {
    let (state, kind, event_name) = (&names.state, &names.kind, &event.name);
    let arguments: Vec<_> = event.parameters.iter().map(|parameter| &parameter.name).collect();
    let mut expression = TokenStream::new();
    for row in rows.iter().rev().map(|number| &declaration.rows[*number]) {
        let action = row.action.as_ref().map(|action| {
            if row.event.is_some() {
                quote!(context.#action(#(#arguments),*);)
            } else {
                quote!(context.#action(state, #kind::#event_name);)
            }
        });
        let next = row.next.as_ref().map_or_else(|| quote!(state), |next| quote!(#state::#next));
        expression = match &row.guard {
            None => quote!(#action #next),
            Some(guard) => {
                quote!(if context.#guard(#(#arguments),*) { #action #next } else { #expression })
            }
        };
    }
    expression
}

/// States with the same rows for this event, in order: what they do is written once.
fn groups(plan: &Plan, event: usize) -> Vec<(&[usize], Vec<usize>)> {
    let mut groups: Vec<(&[usize], Vec<usize>)> = Vec::new();
    for (state, cells) in plan.cells.iter().enumerate() {
        let rows = cells[event].as_slice();
        match groups.iter_mut().find(|(known, _)| *known == rows) {
            Some((_, states)) => states.push(state),
            None => groups.push((rows, vec![state])),
        }
    }
    groups
}

fn on_name(event: &Event) -> Ident {
    format_ident!("on_{}", snake(&event.name))
}

fn row_name(event: &Event, group: usize) -> Ident {
    format_ident!("{}_{group}", snake(&event.name))
}

fn message_name(event: &Event, group: usize) -> Ident {
    format_ident!("{}_{group}_by_message", snake(&event.name))
}

fn snake(name: &Ident) -> String {
    let mut text = String::new();
    for character in name.to_string().trim_start_matches("r#").chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(character.to_lowercase());
    }
    text
}

/// The number of the group of each state.
fn group_of_states(groups: &[(&[usize], Vec<usize>)], states: usize) -> Vec<usize> {
    (0..states)
        .map(|state| groups.iter().position(|(_, of)| of.contains(&state)).unwrap_or_default())
        .collect()
}

/// The function of one event: what it does in each state.
fn on_event(declaration: &Declaration, plan: &Plan, names: &Names, number: usize) -> TokenStream {
    let event = &declaration.events[number];
    let (on, state, context) = (on_name(event), &names.state, &declaration.context);
    let all = angled(declaration.lifetimes.iter());
    let (parameters, types): (Vec<_>, Vec<_>) =
        event.parameters.iter().map(|parameter| (&parameter.name, &parameter.of)).unzip();
    let signature = quote!((context: &mut #context, state: #state, #(#parameters: #types),*) -> #state);
    let groups = groups(plan, number);
    let bodies: Vec<_> = groups.iter().map(|(rows, _)| chain(declaration, names, event, rows)).collect();
    let states_of = |group: &(&[usize], Vec<usize>)| {
        group.1.iter().map(|state| &declaration.states[*state].name).collect::<Vec<_>>()
    };
    match declaration.dispatch {
        Dispatch::Match => {
            let patterns = groups.iter().map(|group| {
                let states = states_of(group);
                quote!(#(#state::#states)|*)
            });
            quote! {
                #[inline]
                fn #on #all #signature { match state { #(#patterns => { #bodies }),* } }
            }
        }
        Dispatch::Chain => {
            let (last, others) = match bodies.split_last() {
                Some(split) => split,
                None => return TokenStream::new(),
            };
            let conditions = groups.iter().map(|group| {
                let states = states_of(group).into_iter().map(|name| quote!(state == #state::#name));
                quote!(#(#states)||*)
            });
            let ifs = conditions.zip(others).map(|(condition, body)| quote!(if #condition { #body } else));
            quote! {
                #[inline]
                fn #on #all #signature { #(#ifs)* { #last } }
            }
        }
        Dispatch::Table => {
            let rows: Vec<_> = (0..groups.len()).map(|group| row_name(event, group)).collect();
            let by_state =
                group_of_states(&groups, plan.cells.len()).into_iter().map(|group| row_name(event, group));
            let count = plan.cells.len();
            let for_all = for_all(declaration);
            let by_message =
                event.code.is_some().then(|| by_messages(declaration, names, event, groups.len()));
            quote! {
                #(#[inline] fn #rows #all #signature { #bodies })*
                #by_message
                #[inline]
                fn #on #all #signature {
                    static ROWS: [#for_all fn(&mut #context, #state, #(#types),*) -> #state; #count] = [#(#by_state),*];
                    ROWS[state as usize](context, state, #(#parameters),*)
                }
            }
        }
    }
}

fn for_all(declaration: &Declaration) -> TokenStream {
    let all = angled(declaration.lifetimes.iter());
    if all.is_empty() { all } else { quote!(for #all) }
}

/// The rows of an event as the table holds them: they read the parameters from the message.
fn by_messages(declaration: &Declaration, names: &Names, event: &Event, groups: usize) -> TokenStream {
    let (state, context) = (&names.state, &declaration.context);
    let all = angled(declaration.lifetimes.iter());
    let message = declaration.message.as_ref().map(|message| quote!(message: #message));
    let read = read_parameters(declaration, event, &quote!(None));
    let parameters: Vec<_> = event.parameters.iter().map(|parameter| &parameter.name).collect();
    let functions = (0..groups).map(|group| {
        let (name, row) = (message_name(event, group), row_name(event, group));
        quote! {
            fn #name #all (context: &mut #context, state: #state, #message) -> Option<#state> {
                #read
                Some(#row(context, state, #(#parameters),*))
            }
        }
    });
    quote!(#(#functions)*)
}

/// Statements that bind an event's parameters, or return `otherwise`.
fn read_parameters(declaration: &Declaration, event: &Event, otherwise: &TokenStream) -> TokenStream {
    let Some(message) = &declaration.message else { return TokenStream::new() };
    let reads = event.parameters.iter().map(|parameter| {
        let (name, of) = (&parameter.name, &parameter.of);
        quote! {
            let Some(#name) = <#of as ::tapeworks_dispatch::FromMessage<#message>>::from_message(message) else {
                return #otherwise;
            };
        }
    });
    quote!(#(#reads)*)
}

fn methods(declaration: &Declaration, plan: &Plan, names: &Names) -> TokenStream {
    let Names { state, event, .. } = names;
    let (visibility, context) = (&declaration.visibility, &declaration.context);
    let first = &declaration.states[0].name;
    let mermaid = diagram::mermaid(declaration, plan);
    let all = angled(declaration.lifetimes.iter());
    let of_events = lifetimes_of_events(declaration);
    let arms = declaration.events.iter().map(|declared| {
        let (on, name) = (on_name(declared), &declared.name);
        let parameters: Vec<_> = declared.parameters.iter().map(|parameter| &parameter.name).collect();
        let fields = (!parameters.is_empty()).then(|| quote!({ #(#parameters),* }));
        quote!(#event::#name #fields => #on(context, self.state, #(#parameters),*))
    });
    let first_doc = format!("The machine in its first state, `{first}`.");
    quote! {
        /// The declaration as a state diagram for Mermaid.
        #visibility const MERMAID: &'static str = #mermaid;

        #[doc = #first_doc]
        #[must_use]
        #visibility const fn new() -> Self {
            Self { state: #state::#first }
        }

        /// The machine in a state known from elsewhere, such as a journal.
        #[must_use]
        #visibility const fn in_state(state: #state) -> Self {
            Self { state }
        }

        /// The state.
        #[must_use]
        #visibility const fn state(&self) -> #state {
            self.state
        }

        /// Takes an event: the row's action is called, and its state taken.
        #[inline]
        #visibility fn handle #all (&mut self, context: &mut #context, event: #event #of_events) {
            self.state = match event { #(#arms),* };
        }
    }
}

/// Taking a message by its code.
fn dispatch(declaration: &Declaration, plan: &Plan, names: &Names) -> TokenStream {
    let (visibility, context) = (&declaration.visibility, &declaration.context);
    let all = angled(declaration.lifetimes.iter());
    let message = declaration.message.as_ref().map(|message| quote!(message: #message));
    let body = match declaration.dispatch {
        Dispatch::Table => by_table(declaration, plan, names),
        Dispatch::Match | Dispatch::Chain => by_comparison(declaration, plan),
    };
    quote! {
        /// Takes a message by its code: finds the row, reads the event's parameters from the message, calls the action
        /// and takes the row's state.
        ///
        /// # Errors
        /// A code that no event has, and a message that the event's parameters cannot be read from. Neither changes
        /// the state.
        #[inline]
        #visibility fn dispatch #all (
            &mut self,
            context: &mut #context,
            code: u64,
            #message
        ) -> ::core::result::Result<(), ::tapeworks_dispatch::DispatchError> {
            #body
        }
    }
}

fn by_table(declaration: &Declaration, plan: &Plan, names: &Names) -> TokenStream {
    let (state, context) = (&names.state, &declaration.context);
    let codes: Vec<u64> = plan.coded.iter().map(|(code, _)| *code).collect();
    let hash = match tapeworks_dispatch_search::find(&codes) {
        Ok(hash) => hash,
        Err(error) => {
            let error = error.to_string();
            return quote!(::core::compile_error!(#error));
        }
    };
    let items = lookup(&hash);
    let (slots, count) = (hash.size(), plan.cells.len());
    let mut row_of_slot = vec![0; slots];
    for (coded, (code, _)) in plan.coded.iter().enumerate() {
        if let Some(slot) = hash.index(*code) {
            row_of_slot[slot] = coded;
        }
    }
    // An empty slot holds the rows of the first event: its key keeps everybody out.
    let cells = row_of_slot.into_iter().map(|coded| {
        let number = plan.coded[coded].1;
        let event = &declaration.events[number];
        let by_state = group_of_states(&groups(plan, number), count).into_iter();
        let by_state = by_state.map(|group| message_name(event, group));
        quote!([#(#by_state),*])
    });
    let for_all = for_all(declaration);
    let message_type = declaration.message.as_ref();
    let message = declaration.message.as_ref().map(|_| quote!(message));
    quote! {
        #items
        static CELLS: [[#for_all fn(&mut #context, #state, #message_type) -> Option<#state>; #count]; #slots] =
            [#(#cells),*];
        let Some(slot) = index(code) else {
            return Err(::tapeworks_dispatch::DispatchError::UnknownCode { code });
        };
        match CELLS[slot][self.state as usize](context, self.state, #message) {
            Some(next) => {
                self.state = next;
                Ok(())
            }
            None => Err(::tapeworks_dispatch::DispatchError::Malformed { code }),
        }
    }
}

/// The hash's tables and function, as `tapeworks hash` writes them.
fn lookup(hash: &PerfectHash) -> TokenStream {
    hash.rust_items(Width::U64, "").parse().unwrap_or_else(|error: proc_macro2::LexError| {
        let error = format!("the hash is no Rust: {error}");
        quote!(::core::compile_error!(#error);)
    })
}

fn by_comparison(declaration: &Declaration, plan: &Plan) -> TokenStream {
    let arms: Vec<_> = plan
        .coded
        .iter()
        .map(|(code, number)| {
            let event = &declaration.events[*number];
            let malformed = quote!(Err(::tapeworks_dispatch::DispatchError::Malformed { code }));
            let (on, read) = (on_name(event), read_parameters(declaration, event, &malformed));
            let parameters = event.parameters.iter().map(|parameter| &parameter.name);
            (code, quote!({ #read #on(context, self.state, #(#parameters),*) }))
        })
        .collect();
    let unknown = quote!(return Err(::tapeworks_dispatch::DispatchError::UnknownCode { code }));
    let next = if declaration.dispatch == Dispatch::Match {
        let arms = arms.iter().map(|(code, arm)| quote!(#code => #arm));
        quote!(match code { #(#arms)* _ => #unknown })
    } else {
        let arms = arms.iter().map(|(code, arm)| quote!(if code == #code #arm else));
        quote!(#(#arms)* { #unknown })
    };
    quote! {
        self.state = #next;
        Ok(())
    }
}
