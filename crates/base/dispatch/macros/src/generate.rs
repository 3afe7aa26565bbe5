//! Generates the Rust code of a declaration.
//!
//! The code has enums for states, event kinds and events, the machine, and a function per event, in the chosen form.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use tapeworks_dispatch_search::{PerfectHash, Width};

use crate::check::Plan;
use crate::declaration::{Declaration, Dispatch, Event};
use crate::diagram;

/// Quotes tokens with hygienic variables. They neither clash with a user's parameter of the same name nor let it hide a generated
/// function.
macro_rules! hygienic {
    ($($tokens:tt)*) => { quote_spanned!(Span::mixed_site()=> $($tokens)*) };
}

/// Generated names derived from the machine's name.
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
    hygienic! {
        #types
        #[allow(dead_code, non_snake_case, unused_variables, clippy::all, clippy::pedantic)]
        const _: () = {
            #(#functions)*
            impl #name {
                #methods
                #dispatch
            }
        };
    }
}

/// Returns the user's documentation, or ours if there is none.
fn documented(attributes: &[syn::Attribute], ours: &str) -> TokenStream {
    if attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
        hygienic!(#(#attributes)*)
    } else {
        hygienic!(#[doc = #ours] #(#attributes)*)
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
        hygienic!(#doc #name)
    });
    let kind_variants = declaration.events.iter().map(|event| {
        let (doc, name) = (format!("`{}`", event.name), &event.name);
        hygienic!(#[doc = #doc] #name)
    });
    let event_variants = declaration.events.iter().map(|event| {
        let doc = documented(&event.attributes, &format!("`{}`", event.name));
        let name = &event.name;
        let fields = event.parameters.iter().map(|parameter| {
            let (doc, name, of) = (format!("`{}`", parameter.name), &parameter.name, &parameter.of);
            hygienic!(#[doc = #doc] #name: #of)
        });
        if event.parameters.is_empty() {
            hygienic!(#doc #name)
        } else {
            hygienic!(#doc #name { #(#fields),* })
        }
    });
    let lifetimes = lifetimes_of_events(declaration);
    hygienic! {
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
                f.pad(match self { #(Self::#state_names => ::core::stringify!(#state_names)),* })
            }
        }

        impl ::core::fmt::Display for #kind {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(match self { #(Self::#event_names => ::core::stringify!(#event_names)),* })
            }
        }

        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self::new()
            }
        }
    }
}

/// Returns the `<'a, 'b>` of the declaration, limited to lifetimes that parameters name.
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
    if lifetimes.is_empty() { TokenStream::new() } else { hygienic!(<#(#lifetimes),*>) }
}

/// Returns the names of lifetimes in a token stream, at any depth.
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

/// Returns the return type of a row: the next state, with the action's output if there is one.
fn returned(declaration: &Declaration, names: &Names) -> TokenStream {
    let state = &names.state;
    match &declaration.output {
        Some(output) => hygienic!((#state, #output)),
        None => hygienic!(#state),
    }
}

/// Returns the type of outputs.
fn output(declaration: &Declaration) -> TokenStream {
    declaration.output.as_ref().map_or_else(|| hygienic!(()), ToTokens::to_token_stream)
}

/// Returns statements that apply a row's result, and the expression of the output.
fn take(declaration: &Declaration, returned: &TokenStream) -> (TokenStream, TokenStream) {
    match declaration.output {
        Some(_) => (hygienic!(let (next, output) = #returned; self.state = next;), hygienic!(output)),
        None => (hygienic!(self.state = #returned;), hygienic!(())),
    }
}

/// Returns a chain of rows as an expression of the next state, and of the output if there is one.
fn chain(declaration: &Declaration, names: &Names, event: &Event, rows: &[usize]) -> TokenStream {
    let (state, kind, event_name) = (&names.state, &names.kind, &event.name);
    let arguments: Vec<_> = event.parameters.iter().map(|parameter| &parameter.name).collect();
    let mut expression = TokenStream::new();
    for row in rows.iter().rev().map(|number| &declaration.rows[*number]) {
        let action = row.action.as_ref().map(|action| {
            if row.event.is_some() {
                hygienic!(context.#action(#(#arguments),*))
            } else {
                hygienic!(context.#action(state, #kind::#event_name))
            }
        });
        let next = row.next.as_ref().map_or_else(|| hygienic!(state), |next| hygienic!(#state::#next));
        let (action, next) = if declaration.output.is_some() {
            let output = action.unwrap_or_else(|| hygienic!(::core::default::Default::default()));
            (Some(hygienic!(let output = #output;)), hygienic!((#next, output)))
        } else {
            (action.map(|action| hygienic!(#action;)), next)
        };
        expression = match &row.guard {
            None => hygienic!(#action #next),
            Some(guard) => {
                hygienic!(if context.#guard(#(#arguments),*) { #action #next } else { #expression })
            }
        };
    }
    expression
}

/// Groups the states that have the same rows for this event, in order, so that their code is generated once.
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

/// Returns a function's name. The number keeps `FooBar` and `Foo_bar` apart; the name helps readers of a profile.
fn function_name(number: usize, event: &Event, suffix: &str) -> Ident {
    Ident::new(&format!("on_{number}_{}{suffix}", snake(&event.name)), Span::mixed_site())
}

fn on_name(number: usize, event: &Event) -> Ident {
    function_name(number, event, "")
}

fn row_name(number: usize, event: &Event, group: usize) -> Ident {
    function_name(number, event, &format!("_row_{group}"))
}

fn message_name(number: usize, event: &Event, group: usize) -> Ident {
    function_name(number, event, &format!("_row_{group}_by_message"))
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

/// Returns the number of each state's group.
fn group_of_states(groups: &[(&[usize], Vec<usize>)], states: usize) -> Vec<usize> {
    (0..states)
        .map(|state| groups.iter().position(|(_, of)| of.contains(&state)).unwrap_or_default())
        .collect()
}

/// Generates the function of one event, for all states.
fn on_event(declaration: &Declaration, plan: &Plan, names: &Names, number: usize) -> TokenStream {
    let event = &declaration.events[number];
    let (on, state, context) = (on_name(number, event), &names.state, &declaration.context);
    let all = angled(declaration.lifetimes.iter());
    let (parameters, types): (Vec<_>, Vec<_>) =
        event.parameters.iter().map(|parameter| (&parameter.name, &parameter.of)).unzip();
    let returned = returned(declaration, names);
    let signature = hygienic!((context: &mut #context, state: #state, #(#parameters: #types),*) -> #returned);
    let groups = groups(plan, number);
    let bodies: Vec<_> = groups.iter().map(|(rows, _)| chain(declaration, names, event, rows)).collect();
    let states_of = |group: &(&[usize], Vec<usize>)| {
        group.1.iter().map(|state| &declaration.states[*state].name).collect::<Vec<_>>()
    };
    match declaration.dispatch {
        Dispatch::Match => {
            let patterns = groups.iter().map(|group| {
                let states = states_of(group);
                hygienic!(#(#state::#states)|*)
            });
            hygienic! {
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
                let states = states_of(group).into_iter().map(|name| hygienic!(state == #state::#name));
                hygienic!(#(#states)||*)
            });
            let ifs = conditions.zip(others).map(|(condition, body)| hygienic!(if #condition { #body } else));
            hygienic! {
                #[inline]
                fn #on #all #signature { #(#ifs)* { #last } }
            }
        }
        Dispatch::Table => {
            let rows: Vec<_> = (0..groups.len()).map(|group| row_name(number, event, group)).collect();
            let by_state = group_of_states(&groups, plan.cells.len())
                .into_iter()
                .map(|group| row_name(number, event, group));
            let count = plan.cells.len();
            let for_all = for_all(declaration);
            let by_message =
                event.code.is_some().then(|| by_messages(declaration, names, number, groups.len()));
            hygienic! {
                #(#[inline] fn #rows #all #signature { #bodies })*
                #by_message
                #[inline]
                fn #on #all #signature {
                    // A separate block, because a static, unlike a variable, would hide a parameter of the same name.
                    let row = {
                        static __MACHINE_ROWS: [#for_all fn(&mut #context, #state, #(#types),*) -> #returned; #count] =
                            [#(#by_state),*];
                        __MACHINE_ROWS[state as usize]
                    };
                    row(context, state, #(#parameters),*)
                }
            }
        }
    }
}

fn for_all(declaration: &Declaration) -> TokenStream {
    let all = angled(declaration.lifetimes.iter());
    if all.is_empty() { all } else { hygienic!(for #all) }
}

/// Generates the rows of an event for the table, which read the parameters from the message.
fn by_messages(declaration: &Declaration, names: &Names, number: usize, groups: usize) -> TokenStream {
    let event = &declaration.events[number];
    let (state, context) = (&names.state, &declaration.context);
    let returned = returned(declaration, names);
    let all = angled(declaration.lifetimes.iter());
    let message = declaration.message.as_ref().map(|message| hygienic!(message: #message));
    let read = read_parameters(declaration, event, &hygienic!(::core::option::Option::None));
    let parameters: Vec<_> = event.parameters.iter().map(|parameter| &parameter.name).collect();
    let functions = (0..groups).map(|group| {
        let (name, row) = (message_name(number, event, group), row_name(number, event, group));
        hygienic! {
            fn #name #all (context: &mut #context, state: #state, #message) -> ::core::option::Option<#returned> {
                #read
                ::core::option::Option::Some(#row(context, state, #(#parameters),*))
            }
        }
    });
    hygienic!(#(#functions)*)
}

/// Returns statements that bind an event's parameters, or return `otherwise`.
fn read_parameters(declaration: &Declaration, event: &Event, otherwise: &TokenStream) -> TokenStream {
    let Some(message) = &declaration.message else { return TokenStream::new() };
    let reads = event.parameters.iter().map(|parameter| {
        let (name, of) = (&parameter.name, &parameter.of);
        hygienic! {
            let ::core::option::Option::Some(#name) =
                <#of as ::tapeworks_dispatch::FromMessage<#message>>::from_message(message)
            else {
                return #otherwise;
            };
        }
    });
    hygienic!(#(#reads)*)
}

fn methods(declaration: &Declaration, plan: &Plan, names: &Names) -> TokenStream {
    let Names { state, event, .. } = names;
    let (visibility, context) = (&declaration.visibility, &declaration.context);
    let first = &declaration.states[0].name;
    let mermaid = diagram::mermaid(declaration, plan);
    let all = angled(declaration.lifetimes.iter());
    let of_events = lifetimes_of_events(declaration);
    let arms = declaration.events.iter().enumerate().map(|(number, declared)| {
        let (on, name) = (on_name(number, declared), &declared.name);
        let parameters: Vec<_> = declared.parameters.iter().map(|parameter| &parameter.name).collect();
        let fields = (!parameters.is_empty()).then(|| hygienic!({ #(#parameters),* }));
        hygienic!(#event::#name #fields => #on(context, self.state, #(#parameters),*))
    });
    let output = output(declaration);
    let (take, taken) = take(declaration, &hygienic!(match event { #(#arms),* }));
    let first_doc = format!("The machine in its first state, `{first}`.");
    hygienic! {
        /// The declaration as a Mermaid state diagram.
        #visibility const MERMAID: &'static str = #mermaid;

        #[doc = #first_doc]
        #[must_use]
        #visibility const fn new() -> Self {
            Self { state: #state::#first }
        }

        /// Creates a machine in a known state, for example from a journal.
        #[must_use]
        #visibility const fn in_state(state: #state) -> Self {
            Self { state }
        }

        /// Returns the current state.
        #[must_use]
        #visibility const fn state(&self) -> #state {
            self.state
        }

        /// Handles an event: calls the row's action and enters its state. Returns the action's output, if it has one.
        #[inline]
        #visibility fn handle #all (&mut self, context: &mut #context, event: #event #of_events) -> #output {
            #take
            #taken
        }
    }
}

/// Generates the dispatch of a message by its code.
fn dispatch(declaration: &Declaration, plan: &Plan, names: &Names) -> TokenStream {
    let (visibility, context) = (&declaration.visibility, &declaration.context);
    let all = angled(declaration.lifetimes.iter());
    let message = declaration.message.as_ref().map(|message| hygienic!(message: #message));
    let output = output(declaration);
    let body = match declaration.dispatch {
        Dispatch::Table => by_table(declaration, plan, names),
        Dispatch::Match | Dispatch::Chain => by_comparison(declaration, plan),
    };
    hygienic! {
        /// Dispatches a message by its code: finds the row, reads the event's parameters from the message, calls the action and
        /// enters the row's state. Returns the action's output, if it has one.
        ///
        /// # Errors
        /// If no event has the code, or the event's parameters cannot be read from the message. Neither changes the state.
        #[inline]
        #visibility fn dispatch #all (
            &mut self,
            context: &mut #context,
            code: u64,
            #message
        ) -> ::core::result::Result<#output, ::tapeworks_dispatch::DispatchError> {
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
            return hygienic!(::core::compile_error!(#error));
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
    // An empty slot holds the rows of the first event, which is safe because its key never matches.
    let cells = row_of_slot.into_iter().map(|coded| {
        let number = plan.coded[coded].1;
        let event = &declaration.events[number];
        let by_state = group_of_states(&groups(plan, number), count).into_iter();
        let by_state = by_state.map(|group| message_name(number, event, group));
        hygienic!([#(#by_state),*])
    });
    let for_all = for_all(declaration);
    let returned = returned(declaration, names);
    let (take, taken) = take(declaration, &hygienic!(returned));
    let message_type = declaration.message.as_ref();
    let message = declaration.message.as_ref().map(|_| hygienic!(message));
    hygienic! {
        let slot = { #items index(code) };
        static __MACHINE_CELLS: [
            [#for_all fn(&mut #context, #state, #message_type) -> ::core::option::Option<#returned>; #count];
            #slots
        ] = [#(#cells),*];
        let ::core::option::Option::Some(slot) = slot else {
            return ::core::result::Result::Err(::tapeworks_dispatch::DispatchError::UnknownCode { code });
        };
        match __MACHINE_CELLS[slot][self.state as usize](context, self.state, #message) {
            ::core::option::Option::Some(returned) => {
                #take
                ::core::result::Result::Ok(#taken)
            }
            ::core::option::Option::None => {
                ::core::result::Result::Err(::tapeworks_dispatch::DispatchError::Malformed { code })
            }
        }
    }
}

/// Returns the hash's tables and function, as `tapeworks hash` writes them.
fn lookup(hash: &PerfectHash) -> TokenStream {
    hash.rust_items(Width::U64, "").parse().unwrap_or_else(|error: proc_macro2::LexError| {
        let error = format!("the hash is no Rust: {error}");
        hygienic!(::core::compile_error!(#error);)
    })
}

fn by_comparison(declaration: &Declaration, plan: &Plan) -> TokenStream {
    let arms: Vec<_> = plan
        .coded
        .iter()
        .map(|(code, number)| {
            let event = &declaration.events[*number];
            let malformed =
                hygienic!(::core::result::Result::Err(::tapeworks_dispatch::DispatchError::Malformed {
                    code
                }));
            let (on, read) = (on_name(*number, event), read_parameters(declaration, event, &malformed));
            let parameters = event.parameters.iter().map(|parameter| &parameter.name);
            (code, hygienic!({ #read #on(context, self.state, #(#parameters),*) }))
        })
        .collect();
    let unknown = hygienic!(
        return ::core::result::Result::Err(::tapeworks_dispatch::DispatchError::UnknownCode { code })
    );
    let next = if declaration.dispatch == Dispatch::Match {
        let arms = arms.iter().map(|(code, arm)| hygienic!(#code => #arm));
        hygienic!(match code { #(#arms)* _ => #unknown })
    } else {
        let arms = arms.iter().map(|(code, arm)| hygienic!(if code == #code #arm else));
        hygienic!(#(#arms)* { #unknown })
    };
    let (take, taken) = take(declaration, &next);
    hygienic! {
        #take
        ::core::result::Result::Ok(#taken)
    }
}
