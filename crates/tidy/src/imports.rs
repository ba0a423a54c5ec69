//! Circles of modules.
//!
//! Model: a file below `src` is a module. It imports another one if a `use` or a path in it that
//! begins with `crate`, `self` or `super` leads there; re-exports are followed to the module that
//! defines the item. A module and the modules inside it count as one: imports between a module and
//! its own folder are ignored. Tests may import everything.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::tree::is_test;
use crate::{FileKind, SourceFile, TidyFinding, Tree};

type Module = Vec<String>;

/// Modules, their re-exports, and their imports.
pub(crate) struct Graph {
    pub edges: BTreeMap<Module, BTreeSet<Module>>,
    paths: BTreeMap<Module, String>,
}

pub(crate) fn graph(files: &[&SourceFile]) -> Graph {
    let modules: BTreeMap<Module, &SourceFile> =
        files.iter().filter_map(|file| Some((file.module()?, *file))).collect();
    let mut walks: BTreeMap<Module, Walk> = BTreeMap::new();
    for (module, file) in &modules {
        let mut walk = Walk::default();
        walk.visit_file(&file.syntax);
        walks.insert(module.clone(), walk);
    }
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, walk) in &walks {
        let into = edges.entry(module.clone()).or_default();
        for path in walk.paths.iter().chain(walk.uses.iter().map(|(_, path)| path)) {
            let Some(target) = resolve(&walks, module, path, 0) else { continue };
            if !target.starts_with(module) && !module.starts_with(&target) {
                into.insert(target);
            }
        }
    }
    Graph {
        edges,
        paths: modules.into_iter().map(|(module, file)| (module, file.path.clone())).collect(),
    }
}

/// The module that a path leads to from `module`.
fn resolve(
    walks: &BTreeMap<Module, Walk>,
    module: &Module,
    path: &[String],
    depth: usize,
) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Module::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        // A child module in the path of a `use`.
        child if walks.contains_key(&[module.clone(), vec![child.to_owned()]].concat()) => {
            return resolve(
                walks,
                module,
                &[vec!["self".to_owned()], path.to_vec()].concat(),
                depth,
            );
        }
        _ => return None,
    };
    for (no, name) in path.iter().enumerate().skip(1) {
        if name == "super" {
            at.pop()?;
            continue;
        }
        let child = [at.clone(), vec![name.clone()]].concat();
        if walks.contains_key(&child) {
            at = child;
            continue;
        }
        // A re-export: continue in the module that it names.
        let walk = walks.get(&at)?;
        let through = walk.uses.iter().find(|(shown, _)| shown == name);
        if let Some((_, other)) = through.filter(|_| depth < 8 && at != *module) {
            let whole = [other.clone(), path[no + 1..].to_vec()].concat();
            return resolve(walks, &at, &whole, depth + 1).or(Some(at));
        }
        break;
    }
    Some(at)
}

/// The paths by which a file uses its crate.
#[derive(Default)]
struct Walk {
    /// Paths in expressions and types.
    paths: BTreeSet<Vec<String>>,
    /// `use`: the name that is shown, and the path.
    uses: Vec<(String, Vec<String>)>,
}

impl Walk {
    fn see_use(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.see_use(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => {
                let shown = name.ident.to_string();
                let mut whole = before.clone();
                if shown != "self" {
                    whole.push(shown.clone());
                }
                self.uses.push((shown, whole));
            }
            syn::UseTree::Rename(rename) => {
                let whole = [before.clone(), vec![rename.ident.to_string()]].concat();
                self.uses.push((rename.rename.to_string(), whole));
            }
            syn::UseTree::Glob(_) => self.uses.push(("*".to_owned(), before.clone())),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|one| self.see_use(one, before));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(crate::tree::attrs(item)) {
            return;
        }
        if let syn::Item::Use(one) = item {
            self.see_use(&one.tree, &mut Vec::new());
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        if names.len() > 1 {
            self.paths.insert(names);
        }
        visit::visit_path(self, path);
    }
}

/// The circles: sets of two or more modules that reach each other.
pub(crate) fn circles(graph: &Graph) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(one) = todo.pop() {
            for next in graph.edges.get(&one).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    todo.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        graph.edges.keys().map(|module| (module, reach(module))).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for (module, there) in &reached {
        if done.contains(*module) || !there.contains(*module) {
            continue;
        }
        let back = |other: &&Module| reached.get(*other).is_some_and(|from| from.contains(*module));
        let circle: Vec<Module> = there.iter().filter(back).cloned().collect();
        done.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

/// The modules of each crate.
fn crates(tree: &Tree) -> BTreeMap<&str, Vec<&SourceFile>> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in
        tree.rust.iter().filter(|file| file.kind == FileKind::Source && file.module().is_some())
    {
        crates.entry(&file.place).or_default().push(file);
    }
    crates
}

/// The layers that the head comment of a crate's root lists below a line with the word `Layers`,
/// one list item each, from top to bottom: the modules in code spans before the item's colon.
fn layers(root: &str) -> BTreeMap<String, usize> {
    let comment = root.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let lines = comment
        .skip_while(|line| !line.contains("Layers"))
        .skip_while(|line| !line.starts_with("- "))
        .take_while(|line| !line.is_empty());
    // A list item may go on in the next lines.
    let list = lines.collect::<Vec<_>>().join(" ");
    let items = list.strip_prefix("- ").into_iter().flat_map(|list| list.split(" - "));
    let mut found = BTreeMap::new();
    for (rank, item) in items.enumerate() {
        let names = item.split(':').next().unwrap_or(item);
        for name in names.split('`').skip(1).step_by(2) {
            found.insert(name.to_owned(), rank);
        }
    }
    found
}

/// In crates that list their layers, a module imports its own layer and lower ones only.
pub(crate) fn upward(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for (place, files) in crates(tree) {
        let root = files.iter().find(|file| file.path.ends_with("src/lib.rs"));
        let layers = root.map(|root| layers(&root.text)).unwrap_or_default();
        if layers.is_empty() {
            continue;
        }
        let graph = graph(&files);
        let mut add = |module: &Module, what: String| {
            let path = graph.paths.get(module).cloned().unwrap_or_default();
            found.push(TidyFinding { place: place.to_owned(), path, line: 0, what });
        };
        for (module, imports) in graph.edges.iter().filter(|(module, _)| !module.is_empty()) {
            let Some(rank) = layers.get(&module[0]) else {
                add(module, format!("{} is in no layer of src/lib.rs", module[0]));
                continue;
            };
            for other in imports.iter().filter(|other| !other.is_empty()) {
                if layers.get(&other[0]).is_some_and(|above| above < rank) {
                    add(module, format!("imports {} of a layer above it", other.join("::")));
                }
            }
        }
    }
    found
}

pub(crate) fn cycles(tree: &Tree) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for (place, files) in crates(tree) {
        let graph = graph(&files);
        for circle in circles(&graph) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            // One finding for each module in the circle, so that a smaller circle has fewer
            // findings.
            for module in &circle {
                found.push(TidyFinding {
                    place: place.to_owned(),
                    path: graph.paths.get(module).cloned().unwrap_or_default(),
                    line: 0,
                    what: format!("in a circle of {}: {}", names.len(), names.join(", ")),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_listed_in_the_head_comment() {
        let root = "//! A crate.\n//!\n//! Layers, from top to bottom:\n//!\n\
            //! - `a`,\n//!   `b`: the `c` of it,\n//!   and more\n//! - `d`\n//!\n//! - `e`\n";
        let expected = [("a", 0), ("b", 0), ("d", 1)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(layers(root), BTreeMap::from(expected));
    }
}
