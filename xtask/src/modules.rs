//! No circle between the modules of a crate.
//!
//! At every depth: the nodes are the modules directly below the root of a library or program, and the root itself where it has code;
//! or the modules directly below another module. A module and its children are one story in several files, so a child may use what its
//! parent has.
//! An arrow is a path in the source that leads from one to the other: `use crate::…`, `use super::…`, or the same in an
//! expression. Not arrows: a parent's declarations and `pub use` of its children, and what only tests are built with.
//!
//! For each arrow that is part of a circle the shortest circle through it is printed, with the file and line of the first path for
//! each of its arrows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use crate::process;

/// The node of the root's own code.
const ROOT: &str = "crate root";

/// Runs the check on this workspace.
pub(crate) fn run() -> Result<String, String> {
    let metadata = process::metadata(&["--no-deps"])?;
    let mut found = Vec::new();
    let mut modules = 0;
    for package in metadata["packages"].as_array().map_or(&[][..], Vec::as_slice) {
        let name = package["name"].as_str().unwrap_or_default();
        for target in package["targets"].as_array().map_or(&[][..], Vec::as_slice) {
            let ships = ["lib", "bin", "proc-macro", "cdylib"]
                .iter()
                .any(|kind| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind)));
            let Some(root) = target["src_path"].as_str().filter(|_| ships) else { continue };
            let source = Source::read(Path::new(root))?;
            modules += source.modules.len() - 1;
            for module in &source.modules {
                let shown = [&[name.to_owned()], module.as_slice()].concat().join("::");
                found.extend(circles(&source.arrows(module)).iter().map(|circle| circle.fault(&shown)));
            }
        }
    }
    if found.is_empty() {
        return Ok(format!("no circle among {modules} modules"));
    }
    Err(format!("{} circles between modules:\n  {}", found.len(), found.join("\n  ")))
}

/// A circle: its arrows in order. It starts at the first node by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Circle(Vec<(String, Place)>);

impl Circle {
    /// `a > b > a`.
    fn name(&self) -> String {
        let mut nodes: Vec<&str> = self.0.iter().map(|(node, _)| node.as_str()).collect();
        nodes.extend(nodes.first().copied());
        nodes.join(" > ")
    }

    /// `a > b` for each arrow.
    fn arrows(&self) -> Vec<String> {
        let targets = self.0.iter().cycle().skip(1);
        self.0.iter().zip(targets).map(|((from, _), (to, _))| format!("{from} > {to}")).collect()
    }

    /// What is wrong in the crate `name`.
    fn fault(&self, name: &str) -> String {
        format!("{name}: {}{}", self.name(), self.places())
    }

    /// A line for each arrow: where the path stands, and what it leads to.
    fn places(&self) -> String {
        let places = self.0.iter().map(|(_, place)| place);
        self.arrows().iter().zip(places).map(|(arrow, place)| format!("\n      {arrow}: {place}")).collect()
    }
}

/// Where a path stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: String,
    line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// From each node to the nodes that it uses, with the first place of each.
type Arrows = BTreeMap<String, BTreeMap<String, Place>>;

/// For each arrow that is part of a circle the shortest circle through it, each circle once.
fn circles(arrows: &Arrows) -> BTreeSet<Circle> {
    let mut found = BTreeSet::new();
    for (from, targets) in arrows {
        for to in targets.keys() {
            let Some(way) = shortest(arrows, to, from) else { continue };
            let start = way.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
            let nodes: Vec<&str> = way[start..].iter().chain(&way[..start]).copied().collect();
            let arrow = |(at, node): (usize, &&str)| {
                let next = nodes[(at + 1) % nodes.len()];
                ((*node).to_owned(), arrows[*node][next].clone())
            };
            found.insert(Circle(nodes.iter().enumerate().map(arrow).collect()));
        }
    }
    found
}

/// The nodes of a shortest way, both ends included.
fn shortest<'a>(arrows: &'a Arrows, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
    let mut before = BTreeMap::from([(from, from)]);
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        if node == to {
            let mut way = vec![to];
            while let Some(previous) = way.last().filter(|last| **last != from).map(|last| before[last]) {
                way.push(previous);
            }
            way.reverse();
            return Some(way);
        }
        for next in arrows.get(node).into_iter().flat_map(BTreeMap::keys) {
            if !before.contains_key(next.as_str()) {
                before.insert(next, node);
                queue.push_back(next);
            }
        }
    }
    None
}

/// A path as it stands in the source, from the module that it stands in.
#[derive(Debug)]
struct Mention {
    /// The module: its names from the root down; empty for the root.
    module: Vec<String>,
    /// The path's names from the root of the crate down.
    path: Vec<String>,
    /// What the path is called where it stands, in a `use`.
    alias: Option<String>,
    /// Whether it is a `pub use`, whatever it is visible to.
    is_export: bool,
    /// Whether it is any `use`.
    is_use: bool,
    place: Place,
}

/// A module with a file of its own: its names, and the file where an attribute names it.
type Elsewhere = (Vec<String>, Option<String>);

/// What the files of one library or program say.
#[derive(Default)]
struct Source {
    /// Every module, by its names from the root down.
    modules: BTreeSet<Vec<String>>,
    mentions: Vec<Mention>,
    /// Names that a module declares at its top: functions, types, constants, macros.
    declared: BTreeSet<(Vec<String>, String)>,
    /// Macros of `macro_rules!` with `#[macro_export]`, which stand at the root, and the module that has them.
    macros: BTreeMap<String, Vec<String>>,
}

impl Source {
    /// Reads the file of the root and those of its modules.
    fn read(root: &Path) -> Result<Self, String> {
        let mut source = Self::default();
        let folder = root.parent().unwrap_or(Path::new("."));
        source.file(root, folder, Vec::new())?;
        Ok(source)
    }

    /// Reads the file of `module`, whose children's files are in `folder`.
    fn file(&mut self, path: &Path, folder: &Path, module: Vec<String>) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.strip_prefix(process::root()).unwrap_or(path).display().to_string();
        for (child, file) in self.text(&shown, &text, &module)? {
            let names = &child[module.len()..];
            let (last, above) = names.split_last().ok_or("a module without a name")?;
            let within = above.iter().fold(folder.to_path_buf(), |folder, name| folder.join(name));
            let (file, below) = match file {
                Some(file) => {
                    let file = path.parent().unwrap_or(Path::new(".")).join(file);
                    (file, within.join(last))
                }
                None => (found(&within, last, path)?, within.join(last)),
            };
            self.file(&file, &below, child)?;
        }
        Ok(())
    }

    /// Takes in the text of a module's file. Gives the modules that have files of their own, with the file's name where
    /// an attribute says it.
    fn text(&mut self, file: &str, text: &str, module: &[String]) -> Result<Vec<Elsewhere>, String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("{file}: {error}"))?;
        self.modules.insert(module.to_vec());
        let mut reader = Reader { source: self, file, files: Vec::new() };
        reader.tokens(&tokens.into_iter().collect::<Vec<_>>(), module, true);
        Ok(reader.files)
    }

    /// The modules directly below `module`.
    fn children(&self, module: &[String]) -> BTreeSet<&str> {
        let is_child = |other: &&Vec<String>| other.len() == module.len() + 1 && other.starts_with(module);
        self.modules.iter().filter(is_child).filter_map(|child| child.last()).map(String::as_str).collect()
    }

    /// Who uses whom among the children of `module`, and in the root its own code.
    fn arrows(&self, module: &[String]) -> Arrows {
        let mut arrows = Arrows::new();
        let children = self.children(module);
        if children.is_empty() {
            return arrows;
        }
        for mention in self.mentions.iter().filter(|mention| mention.module.starts_with(module)) {
            if mention.module == module && mention.is_export {
                continue;
            }
            let Some(owner) = self.owner(&mention.path, 0) else { continue };
            let node = |below: &[String]| match below.first() {
                None if !module.is_empty() => None,
                child => Some(child.map_or(ROOT, String::as_str).to_owned()),
            };
            let from = node(&mention.module[module.len()..]);
            let to = owner.strip_prefix(module).and_then(node);
            let (Some(from), Some(to)) = (from, to) else { continue };
            if to == from {
                continue;
            }
            let place = arrows.entry(from).or_default().entry(to);
            place
                .and_modify(|first| *first = mention.place.clone().min(first.clone()))
                .or_insert_with(|| mention.place.clone());
        }
        arrows
    }

    /// The module that has what a path from the root leads to. A name that a module only passes on is its owner's.
    fn owner(&self, path: &[String], depth: usize) -> Option<Vec<String>> {
        let known = (0..=path.len()).rev().find(|&length| self.modules.contains(&path[..length]))?;
        let (module, rest) = path.split_at(known);
        let Some(first) = rest.first() else { return Some(module.to_vec()) };
        if module.is_empty()
            && let Some(owner) = self.macros.get(first)
        {
            return Some(owner.clone());
        }
        // A module may pass on what it has from elsewhere; a name re-exported more than eight times is a circle of names.
        let here = || self.mentions.iter().filter(|mention| mention.is_use && mention.module == module);
        if depth < 8 {
            if let Some(named) = here().find(|mention| mention.alias.as_ref() == Some(first)) {
                return self.owner(&named.path, depth + 1);
            }
            let globs = here().filter(|mention| mention.alias.as_deref() == Some("*"));
            for glob in globs {
                if self.declared.contains(&(glob.path.clone(), first.clone())) {
                    let path = [glob.path.as_slice(), std::slice::from_ref(first)].concat();
                    return self.owner(&path, depth + 1);
                }
            }
        }
        let is_declared = self.declared.contains(&(module.to_vec(), first.clone()));
        (is_declared || !module.is_empty()).then(|| module.to_vec())
    }
}

/// The file of the module `name` in `folder`.
fn found(folder: &Path, name: &str, parent: &Path) -> Result<PathBuf, String> {
    let candidates = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    let file = candidates.into_iter().find(|file| file.is_file());
    file.ok_or_else(|| format!("{}: no file of the module {name}", parent.display()))
}

/// Reads the tokens of one file.
struct Reader<'a> {
    source: &'a mut Source,
    file: &'a str,
    files: Vec<Elsewhere>,
}

impl Reader<'_> {
    /// Reads tokens that stand in `module`, `at_top` if items among them are the module's own.
    fn tokens(&mut self, tokens: &[TokenTree], module: &[String], at_top: bool) {
        let mut at = 0;
        // Attributes of the item that follows.
        let mut attributes: Vec<String> = Vec::new();
        let mut is_public = false;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let group = tokens[at + 1..].iter().take(2).position(is_brackets);
                    let Some(group) = group.map(|skipped| at + 1 + skipped) else {
                        at += 1;
                        continue;
                    };
                    // `#![cfg(test)]` is about the whole file.
                    let attribute = flat(&tokens[group]);
                    if group == at + 2 && is_of_tests(&attribute) {
                        return;
                    }
                    attributes.push(attribute);
                    at = group + 1;
                    continue;
                }
                _ if attributes.iter().any(|attribute| is_of_tests(attribute)) => {
                    at = behind_item(tokens, at);
                    attributes.clear();
                    continue;
                }
                TokenTree::Ident(word) if *word == "pub" => {
                    is_public = true;
                    at += 1 + usize::from(tokens.get(at + 1).is_some_and(is_parenthesis));
                    continue;
                }
                TokenTree::Ident(word) if *word == "use" => {
                    let end = behind_item(tokens, at);
                    self.used(&tokens[at + 1..end], module, is_public);
                    at = end;
                }
                TokenTree::Ident(word) if *word == "mod" => {
                    at = self.declaration(tokens, at, module, &attributes);
                }
                TokenTree::Ident(word) if *word == "macro_rules" && is_mark(tokens.get(at + 1), '!') => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 2) {
                        self.source.macros.insert(name.to_string(), module.to_vec());
                    }
                    at += 3;
                }
                TokenTree::Ident(_) => {
                    if at_top {
                        self.declares(tokens, at, module);
                    }
                    at = self.path(tokens, at, module);
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.tokens(&inner, module, false);
                    at += 1;
                }
                _ => at += 1,
            }
            attributes.clear();
            is_public = false;
        }
    }

    /// `mod name;` or `mod name { … }` at `at`; gives where it ends.
    fn declaration(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        module: &[String],
        attributes: &[String],
    ) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else { return at + 1 };
        let child: Vec<String> = module.iter().cloned().chain([name.to_string()]).collect();
        match tokens.get(at + 2) {
            Some(TokenTree::Group(group)) => {
                self.source.modules.insert(child.clone());
                self.tokens(&group.stream().into_iter().collect::<Vec<_>>(), &child, true);
            }
            _ if is_mark(tokens.get(at + 2), ';') => {
                let path = attributes.iter().find_map(|attribute| attribute.strip_prefix("path="));
                self.files.push((child, path.map(|path| path.trim_matches('"').to_owned())));
            }
            _ => return at + 1,
        }
        at + 3
    }

    /// Notes the name that an item at `at` declares.
    fn declares(&mut self, tokens: &[TokenTree], at: usize, module: &[String]) {
        let item = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
        let (TokenTree::Ident(word), Some(TokenTree::Ident(name))) = (&tokens[at], tokens.get(at + 1)) else {
            return;
        };
        if item.iter().any(|item| word == item) {
            self.source.declared.insert((module.to_vec(), name.to_string()));
        }
    }

    /// The path in an expression or type that starts at `at`, if it is one of this crate; gives where it ends.
    fn path(&mut self, tokens: &[TokenTree], at: usize, module: &[String]) -> usize {
        let TokenTree::Ident(first) = &tokens[at] else { return at + 1 };
        let (mut names, mut end) = (vec![first.to_string()], at + 1);
        while is_colons(tokens, end) {
            let Some(TokenTree::Ident(name)) = tokens.get(end + 2) else { break };
            names.push(name.to_string());
            end += 3;
        }
        // A path behind `::` goes on from something else: `<T as crate::X>::Y`.
        let is_start = at < 2 || !is_colons(tokens, at - 2);
        if names.len() > 1
            && is_start
            && let Some(path) = absolute(&names, module)
        {
            let mention = self.mention(module, path, first.span().start().line);
            self.source.mentions.push(mention);
        }
        end
    }

    /// The tree of a `use`, without the word and the semicolon.
    fn used(&mut self, tree: &[TokenTree], module: &[String], is_export: bool) {
        let mut leaves = Vec::new();
        leaves_of(tree, &[], &mut leaves);
        for Leaf { names, alias, line } in leaves {
            let Some(path) = absolute(&names, module) else { continue };
            let mention = self.mention(module, path, line);
            self.source.mentions.push(Mention { alias: Some(alias), is_export, is_use: true, ..mention });
        }
    }

    fn mention(&self, module: &[String], path: Vec<String>, line: usize) -> Mention {
        let place = Place { file: self.file.to_owned(), line };
        Mention { module: module.to_vec(), path, alias: None, is_export: false, is_use: false, place }
    }
}

/// One name that a `use` brings in.
struct Leaf {
    names: Vec<String>,
    alias: String,
    line: usize,
}

/// The leaves of a tree of `use` below the names `above`.
fn leaves_of(tree: &[TokenTree], above: &[String], leaves: &mut Vec<Leaf>) {
    for branch in tree.split(|token| is_mark(Some(token), ',')) {
        let (mut names, mut alias, mut line, mut is_leaf) = (above.to_vec(), None, 0, false);
        let mut tokens = branch.iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if *word == "as" => alias = tokens.next().map(ToString::to_string),
                TokenTree::Ident(word) => {
                    (is_leaf, line) = (true, word.span().start().line);
                    names.push(word.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == '*' => {
                    (is_leaf, line) = (true, mark.span().start().line);
                    names.push("*".into());
                }
                TokenTree::Group(group) => {
                    is_leaf = false;
                    leaves_of(&group.stream().into_iter().collect::<Vec<_>>(), &names, leaves);
                }
                _ => {}
            }
        }
        // `a::{self}` and `a::*` are about `a`.
        let is_glob = names.last().is_some_and(|last| last == "*");
        if is_glob || names.len() > 1 && names.last().is_some_and(|last| last == "self") {
            names.pop();
        }
        let own = if is_glob { Some("*".into()) } else { names.last().cloned() };
        if is_leaf && let Some(alias) = alias.or(own) {
            leaves.push(Leaf { names, alias, line });
        }
    }
}

/// The path from the root, if it is one of this crate.
fn absolute(names: &[String], module: &[String]) -> Option<Vec<String>> {
    let mut above = module.len();
    let rest = match names.first()?.as_str() {
        "crate" => {
            above = 0;
            &names[1..]
        }
        "self" => &names[1..],
        "super" => {
            let supers = names.iter().take_while(|name| *name == "super").count();
            above = above.checked_sub(supers)?;
            &names[supers..]
        }
        // A bare path may be a child's; elsewhere than in the root a child is part of the same node.
        _ => names,
    };
    Some(module[..above].iter().chain(rest).cloned().collect())
}

/// Where the item ends that starts at `at`, for what is behind it.
fn behind_item(tokens: &[TokenTree], at: usize) -> usize {
    let words =
        ["pub", "fn", "mod", "struct", "enum", "union", "trait", "type", "const", "static", "impl", "extern"];
    let starts_with = |word: &str| matches!(&tokens[at], TokenTree::Ident(first) if *first == word);
    let visibility = usize::from(starts_with("pub"));
    let behind = tokens[at..].iter().skip(visibility).find(|token| !is_parenthesis(token));
    let is_use = matches!(behind, Some(TokenTree::Ident(word)) if *word == "use");
    let is_item = words.iter().any(|word| starts_with(word));
    let ends = |token: &TokenTree| {
        is_mark(Some(token), ';')
            || !is_use && matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
            || !is_use && !is_item && is_mark(Some(token), ',')
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |end| at + end + 1)
}

/// Whether what has this attribute is built for tests only.
fn is_of_tests(attribute: &str) -> bool {
    let condition = attribute.strip_prefix("cfg(").unwrap_or_default();
    let has_test = condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test");
    attribute == "test" || has_test && !condition.contains("not(test") && !condition.contains("any(")
}

/// An attribute's text without spaces.
fn flat(token: &TokenTree) -> String {
    let TokenTree::Group(group) = token else { return String::new() };
    group.stream().to_string().split_whitespace().collect()
}

fn is_brackets(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket)
}

fn is_parenthesis(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// Whether `::` stands at `at`.
fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':' && mark.spacing() == Spacing::Joint)
        && is_mark(tokens.get(at + 1), ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files: the module, its text.
    fn source(files: &[(&str, &str)]) -> Source {
        let mut source = Source::default();
        for (module, text) in files {
            let names: Vec<String> =
                module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            let file = if names.is_empty() { "lib.rs".to_owned() } else { format!("{}.rs", names.join("/")) };
            source.text(&file, text, &names).unwrap();
        }
        source
    }

    fn names(files: &[(&str, &str)]) -> Vec<String> {
        circles(&source(files).arrows(&[])).iter().map(Circle::name).collect()
    }

    #[test]
    fn modules_that_use_each_other_in_one_direction_pass() {
        let files = [
            ("", "mod a; mod b; pub use a::A; pub(crate) use b::*;"),
            ("a", "use crate::b::B; pub struct A(B);"),
            ("b", "use std::fmt; pub struct B;"),
        ];
        assert_eq!(names(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_a_path_with_the_place_of_each_arrow() {
        let files = [
            ("", "mod a; mod b; mod c;"),
            ("a", "//! Doc.\nuse std::fmt;\nuse crate::{b::{self, B}};\nuse crate::b::C;"),
            ("b", "\nfn f() -> super::c::X {}"),
            ("c", "use super::a;"),
        ];
        let found: Vec<String> =
            circles(&source(&files).arrows(&[])).iter().map(|circle| circle.fault("k")).collect();
        assert_eq!(
            found,
            ["k: a > b > c > a\n      a > b: a.rs:3\n      b > c: b.rs:2\n      c > a: c.rs:1"]
        );
    }

    #[test]
    fn a_reexported_name_belongs_to_its_module() {
        for export in ["pub use a::A;", "use a::A;", "pub use a::*;", "pub use a::{Z as A};"] {
            let root = format!("mod a; mod b; {export}");
            let files = [
                ("", root.as_str()),
                ("a", "use crate::b::B; pub struct A; pub struct Z;"),
                ("b", "use crate::A; pub struct B;"),
            ];
            assert_eq!(names(&files), ["a > b > a"], "{export}");
        }
    }

    #[test]
    fn the_roots_own_code_is_a_node() {
        let files = [("", "mod a; pub struct S; fn f() { a::g() }"), ("a", "use crate::S;")];
        assert_eq!(names(&files), ["a > crate root > a"]);
        let files = [("", "mod a; pub struct S; pub use a::g;"), ("a", "use crate::S;")];
        assert_eq!(names(&files), Vec::<String>::new());
    }

    #[test]
    fn modules_of_tests_only_are_left_out() {
        let files = [
            ("", "mod a; mod b; #[cfg(test)] mod tests { use crate::a; }"),
            ("a", "use crate::b;"),
            (
                "b",
                "#[cfg(test)] use crate::a::{B, C}; #[cfg(all(test, loom))] #[expect(x)] pub(crate) mod tests { use \
                 crate::a::X; } #[test] fn t() { crate::a::f(); } struct S { #[cfg(test)] x: crate::a::X, y: u8 }",
            ),
        ];
        assert_eq!(names(&files), Vec::<String>::new());
        let shipped =
            [("", "mod a; mod b;"), ("a", "use crate::b;"), ("b", "#[cfg(not(test))] use crate::a;")];
        assert_eq!(names(&shipped), ["a > b > a"]);
    }

    #[test]
    fn nested_modules_belong_to_the_one_below_the_root() {
        let files = [
            ("", "mod a; mod b;"),
            ("a", "mod inner { use super::super::b::B; fn f() { super::g() } } fn g() {}"),
            ("b", "mod deep;"),
            ("b::deep", "use super::X; fn f() { super::super::a::g() }"),
        ];
        assert_eq!(names(&files), ["a > b > a"]);
    }

    #[test]
    fn nested_modules_are_checked_among_themselves_and_may_use_their_parent() {
        let files = [
            ("", "mod a;"),
            ("a", "mod b; mod c; pub(super) use c::C; struct A; fn f() { b::g() }"),
            ("a::b", "use super::{A, C}; use super::c::D; pub(super) fn g() {}"),
            ("a::c", "use crate::a::b::g; use super::A; pub struct C; pub struct D;"),
        ];
        let source = source(&files);
        let names: Vec<String> =
            circles(&source.arrows(&["a".to_owned()])).iter().map(Circle::name).collect();
        assert_eq!(names, ["b > c > b"]);
        assert!(circles(&source.arrows(&[])).is_empty());
    }

    #[test]
    fn paths_in_macros_and_exported_macros_count() {
        let files = [
            ("", "mod a; mod b;"),
            ("a", "#[macro_export] macro_rules! m { () => { $crate::b::f() } }"),
            ("b", "fn f() { crate::m!() }"),
        ];
        assert_eq!(names(&files), ["a > b > a"]);
    }

    #[test]
    fn strings_and_comments_are_no_paths() {
        let files = [
            ("", "mod a; mod b;"),
            ("a", "use crate::b;"),
            (
                "b",
                "//! [`crate::a`]\n// crate::a::x\nconst S: &str = \"crate::a::f\"; fn a() { x.a::<u8>() }",
            ),
        ];
        assert_eq!(names(&files), Vec::<String>::new());
    }

    #[test]
    fn files_of_modules_are_found_where_the_compiler_finds_them() {
        let source = Source::read(&process::root().join("xtask/src/main.rs")).unwrap();
        assert!(source.children(&[]).is_superset(&["modules", "steps"].into()));
        assert!(source.arrows(&[])["steps"]["deps"].file.ends_with("xtask/src/steps.rs"));
    }
}
