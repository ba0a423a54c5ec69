//! Rules on types, functions and tests.
//!
//! Model: items are collected with the modules that they are written in, inline ones too. Items
//! under `#[cfg(test)]` are not judged, except for tests' names. A type's methods are those of all
//! its `impl` blocks in the crate; methods of traits are not counted.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::tree::is_test;
use crate::{FileKind, SourceFile, TidyFinding, Tree};

/// Most methods of one type.
pub(crate) const METHODS_MAX: usize = 40;
/// Most characters of a test's name.
const TEST_NAME_MAX: usize = 60;

/// The items of a file.
#[derive(Default)]
pub(crate) struct Items {
    /// Public types: name, line.
    pub types: Vec<(String, usize)>,
    /// Methods: the type's name, and the lines that they begin on.
    pub methods: Vec<(String, usize)>,
    /// Public functions that return `Result` and do not document their errors: name, line.
    pub silent: Vec<(String, usize)>,
    /// Public functions that return `Result`.
    pub fallible: usize,
    /// Tests: name, line.
    pub tests: Vec<(String, usize)>,
    /// Assertions outside of tests.
    pub assertions: usize,
    depth_of_tests: usize,
    owner: Option<String>,
}

impl Items {
    pub fn of(file: &SourceFile) -> Items {
        let mut items =
            Items { depth_of_tests: usize::from(file.kind == FileKind::Test), ..Items::default() };
        items.visit_file(&file.syntax);
        items
    }

    fn is_product(&self) -> bool {
        self.depth_of_tests == 0
    }

    fn see_type(&mut self, vis: &syn::Visibility, name: &syn::Ident) {
        if self.is_product() && matches!(vis, syn::Visibility::Public(_)) {
            self.types.push((name.to_string(), name.span().start().line));
        }
    }

    fn see_function(
        &mut self,
        vis: &syn::Visibility,
        attrs: &[syn::Attribute],
        sig: &syn::Signature,
    ) {
        if attrs.iter().any(|attr| attr.path().is_ident("test")) {
            self.tests.push((sig.ident.to_string(), sig.ident.span().start().line));
        }
        let syn::ReturnType::Type(_, returned) = &sig.output else { return };
        let syn::Type::Path(path) = &**returned else { return };
        let is_result = path.path.segments.last().is_some_and(|last| last.ident == "Result");
        if !self.is_product() || !is_result || !matches!(vis, syn::Visibility::Public(_)) {
            return;
        }
        self.fallible += 1;
        let told = attrs.iter().any(|attr| match &attr.meta {
            syn::Meta::NameValue(pair) if attr.path().is_ident("doc") => {
                matches!(&pair.value, syn::Expr::Lit(lit)
                    if matches!(&lit.lit, syn::Lit::Str(text) if text.value().trim() == "# Errors"))
            }
            _ => false,
        });
        if !told {
            self.silent.push((sig.ident.to_string(), sig.ident.span().start().line));
        }
    }

    fn see_macro(&mut self, path: &syn::Path) {
        let Some(last) = path.segments.last().filter(|_| self.is_product()) else { return };
        let name = last.ident.to_string();
        if name.starts_with("assert") || name.starts_with("debug_assert") {
            self.assertions += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let under_test = is_test(crate::tree::attrs(item));
        self.depth_of_tests += usize::from(under_test);
        match item {
            syn::Item::Struct(one) => self.see_type(&one.vis, &one.ident),
            syn::Item::Enum(one) => self.see_type(&one.vis, &one.ident),
            syn::Item::Trait(one) => self.see_type(&one.vis, &one.ident),
            syn::Item::Union(one) => self.see_type(&one.vis, &one.ident),
            syn::Item::Fn(one) => self.see_function(&one.vis, &one.attrs, &one.sig),
            _ => {}
        }
        visit::visit_item(self, item);
        self.depth_of_tests -= usize::from(under_test);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let before = std::mem::replace(&mut self.owner, name.filter(|_| item.trait_.is_none()));
        visit::visit_item_impl(self, item);
        self.owner = before;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if let Some(owner) =
            self.owner.clone().filter(|_| self.is_product() && !is_test(&item.attrs))
        {
            self.methods.push((owner, item.span().start().line));
            self.see_function(&item.vis, &item.attrs, &item.sig);
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        self.see_macro(&one.path);
    }
}

fn finding(file: &SourceFile, line: usize, what: String) -> TidyFinding {
    TidyFinding { place: file.place.clone(), path: file.path.clone(), line, what }
}

/// Findings for each public type whose name an earlier path already has.
pub(crate) fn type_names(tree: &Tree) -> Vec<TidyFinding> {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for file in tree.rust.iter().filter(|file| file.path.contains("/src/")) {
        // Crates that only tests use share the names of the product.
        let mut items = Items::default();
        items.visit_file(&file.syntax);
        for (name, line) in items.types {
            match first.get(&name) {
                Some(other) => found.push(finding(file, line, format!("{name} is in {other} too"))),
                None => drop(first.insert(name, file.path.clone())),
            }
        }
    }
    found
}

/// Types of a crate and how many methods each has.
pub(crate) fn methods_of_types(tree: &Tree) -> BTreeMap<(String, String), (usize, String)> {
    let mut counted: BTreeMap<(String, String), (usize, String)> = BTreeMap::new();
    for file in tree.rust.iter().filter(|file| file.kind == FileKind::Source) {
        for (name, _) in Items::of(file).methods {
            let entry = counted.entry((file.place.clone(), name));
            entry.or_insert_with(|| (0, file.path.clone())).0 += 1;
        }
    }
    counted
}

pub(crate) fn methods(tree: &Tree) -> Vec<TidyFinding> {
    let counted = methods_of_types(tree).into_iter();
    let many = counted.filter(|(_, (number, _))| *number > METHODS_MAX);
    many.map(|((place, name), (number, path))| {
        let what = format!("{name} has {number} methods; {METHODS_MAX} are allowed");
        TidyFinding { place, path, line: 0, what }
    })
    .collect()
}

pub(crate) fn errors_documented(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for file in tree.rust.iter().filter(|file| file.kind == FileKind::Source) {
        let silent = Items::of(file).silent.into_iter();
        found.extend(silent.map(|(name, line)| {
            finding(file, line, format!("{name} returns Result and has no section '# Errors'"))
        }));
    }
    found
}

pub(crate) fn test_names(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for file in &tree.rust {
        let long = Items::of(file).tests.into_iter().filter(|(name, _)| name.len() > TEST_NAME_MAX);
        found.extend(
            long.map(|(name, line)| {
                finding(file, line, format!("{name}: {} characters", name.len()))
            }),
        );
    }
    found
}

/// Files of tests that no program has, in crates that name their programs themselves: cargo builds
/// no other, and says nothing.
pub(crate) fn left_out_tests(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for manifest in &tree.texts {
        let Some(folder) = manifest.path.strip_suffix("/Cargo.toml") else { continue };
        if !manifest.text.contains("autotests = false") {
            continue;
        }
        let tests = format!("{folder}/tests/");
        let all = tree.rust.iter().find(|file| file.path == format!("{tests}all.rs"));
        let modules: BTreeSet<String> = all
            .map_or(&[][..], |all| &all.syntax.items)
            .iter()
            .filter_map(|item| match item {
                syn::Item::Mod(one) => Some(one.ident.to_string()),
                _ => None,
            })
            .collect();
        for file in &tree.rust {
            let name = file.path.strip_prefix(&tests).and_then(|name| name.strip_suffix(".rs"));
            let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
            let program = format!("path = \"tests/{name}.rs\"");
            if !modules.contains(name) && !manifest.text.contains(&program) {
                found.push(TidyFinding {
                    place: file.place.clone(),
                    path: file.path.clone(),
                    line: 0,
                    what: format!("runs nowhere; add `mod {name};` to {tests}all.rs"),
                });
            }
        }
    }
    found
}
