//! A crate's modules, and what each of them imports from the others: read from its source files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// The names on the way to a module or an item, from the crate's root.
type Names = Vec<String>;

/// The modules of a crate, by their path from its root.
pub(crate) struct Modules {
    modules: BTreeMap<Names, Module>,
}

/// One source file.
#[derive(Default)]
struct Module {
    /// What it defines.
    items: BTreeSet<String>,
    /// What it imports, by the name it has here.
    imports: BTreeMap<String, Names>,
    /// Modules of which it imports all.
    globs: Vec<Names>,
    /// Paths that it writes out in full.
    paths: BTreeSet<Names>,
}

impl Modules {
    /// Reads all source files of the crate in this folder.
    pub(crate) fn read(krate: &Path) -> Self {
        let mut modules = Self { modules: BTreeMap::new() };
        modules.read_folder(&krate.join("src"), &[]);
        modules
    }

    fn read_folder(&mut self, folder: &Path, parent: &[String]) {
        let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder of sources").flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let stem = path.file_stem().expect("a file name").to_string_lossy().into_owned();
            let mut names = parent.to_vec();
            if path.is_dir() {
                names.push(stem);
                self.read_folder(&path, &names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                if !["lib", "main"].contains(&&*stem) {
                    names.push(stem);
                }
                let text = fs::read_to_string(&path).expect("a source file");
                let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let mut reader = Reader { names: names.clone(), module: Module::default() };
                reader.visit_file(&file);
                self.modules.insert(names, reader.module);
            }
        }
    }

    /// For every module, in which others is defined what it uses.
    pub(crate) fn dependencies(&self) -> BTreeMap<String, BTreeSet<String>> {
        let name = |names: &Names| if names.is_empty() { "(root)".to_owned() } else { names.join("/") };
        let of = |(names, module): (&Names, &Module)| {
            let used = module.imports.values().chain(&module.globs).chain(&module.paths);
            let homes = used.filter_map(|path| self.home(path, 0)).filter(|home| home != names);
            (name(names), homes.map(|home| name(&home)).collect())
        };
        self.modules.iter().map(of).collect()
    }

    /// The module that defines what a path names; none if it is no part of the crate.
    fn home(&self, path: &[String], depth: usize) -> Option<Names> {
        // The longest part of it that is a module, and what follows.
        let n = (0..=path.len()).rev().find(|&n| self.modules.contains_key(&path[..n]))?;
        let (module, Some(item)) = (&self.modules[&path[..n]], path.get(n)) else { return Some(path.to_vec()) };
        if module.items.contains(item) || depth > 8 {
            return Some(path[..n].to_vec());
        }
        if let Some(import) = module.imports.get(item) {
            let target: Names = import.iter().chain(&path[n + 1..]).cloned().collect();
            return self.home(&target, depth + 1);
        }
        let from_glob = |glob: &Names| {
            let target: Names = glob.iter().chain(&path[n..]).cloned().collect();
            self.home(&target, depth + 1)
        };
        module.globs.iter().find_map(from_glob)
    }
}

/// Reads one file.
struct Reader {
    names: Names,
    module: Module,
}

impl Reader {
    /// A path as it is written here, from the crate's root; none if it begins elsewhere.
    fn absolute(&self, written: &[String]) -> Option<Names> {
        let mut base = self.names.clone();
        let mut rest = written;
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while let Some((first, others)) = rest.split_first()
                    && first == "super"
                {
                    base.pop();
                    rest = others;
                }
            }
            _ => {}
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn add_use(&mut self, tree: &UseTree, mut before: Names) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(tree, before.clone())),
            UseTree::Glob(_) => self.module.globs.extend(self.absolute(&before)),
            UseTree::Name(name) => self.add_import(before, &name.ident.to_string(), None),
            UseTree::Rename(rename) => {
                self.add_import(before, &rename.ident.to_string(), Some(rename.rename.to_string()));
            }
        }
    }

    fn add_import(&mut self, mut path: Names, last: &str, renamed: Option<String>) {
        if last != "self" {
            path.push(last.to_owned());
        }
        let name = renamed.or_else(|| path.last().cloned());
        if let (Some(name), Some(path)) = (name, self.absolute(&path)) {
            self.module.imports.insert(name, path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name): (&[Attribute], _) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Mod(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            _ => (&[], None),
        };
        if attributes.iter().any(is_for_tests) {
            return;
        }
        self.module.items.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&item.tree, Vec::new());
    }

    /// `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if matches!(written.first().map(String::as_str), Some("crate" | "super")) {
            self.module.paths.extend(self.absolute(&written));
        }
        syn::visit::visit_path(self, path);
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
}
