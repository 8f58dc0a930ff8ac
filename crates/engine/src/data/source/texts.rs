//! Text, opened by its description.

use std::path::Path;

use super::super::parts::Parts;
use super::super::text::{self, TextOptions, TextSet};
use super::super::{DataError, jsonl, parquet};
use super::wanted::Wanted;
use jsonl::JsonTexts;
use parquet::ParquetTexts;

/// Files of plain text.
pub(super) fn open_plain(wanted: &Wanted<'_>, path: &Path) -> Result<TextSet, DataError> {
    text::open(path, &options(wanted), wanted.split)
}

/// The texts of JSON lines.
pub(super) fn open_jsonl(wanted: &Wanted<'_>, path: &Path, parts: &Parts) -> Result<TextSet, DataError> {
    let field = field(wanted);
    text::open_documents(path, parts, &options(wanted), wanted.split, |files| Box::new(JsonTexts { files, field }))
}

/// The texts of Parquet files.
pub(super) fn open_parquet(wanted: &Wanted<'_>, path: &Path, parts: &Parts) -> Result<TextSet, DataError> {
    let column = field(wanted);
    text::open_documents(path, parts, &options(wanted), wanted.split, |files| Box::new(ParquetTexts { files, column }))
}

/// The field or column that holds the text.
pub(super) fn field<'a>(wanted: &Wanted<'a>) -> &'a str {
    wanted.spec.text.as_deref().unwrap_or(jsonl::TEXT_FIELD)
}

fn options<'a>(wanted: &Wanted<'a>) -> TextOptions<'a> {
    let spec = wanted.spec;
    TextOptions { tokens: spec.tokens.as_ref(), length: spec.length, test_fraction: spec.test_fraction() }
}

#[cfg(test)]
mod tests {
    use crate::data::source::{DataSpec, open};
    use crate::data::{Dataset, Split, TargetKind, parquet};

    #[test]
    fn documents_become_windows_wherever_they_are_read_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let documents = ["the first of them ", "and another ", "the last"];
        std::fs::write(path("a.txt"), documents.join("\0")).unwrap();
        let lines = documents.map(|text| serde_json::json!({ "body": text }).to_string()).join("\n");
        std::fs::write(path("a.jsonl"), lines).unwrap();
        parquet::tests::write(&path("a.parquet"), &documents.map(|text| (1, 0.5, text)));
        let set = |name: &str, more: &str, split| {
            let spec: DataSpec = toml::from_str(&format!("length = 8\ntest_fraction = 0.3\n{more}")).unwrap();
            open(&spec, Some(&path(name)), split, 0)
        };
        let inputs = |set: Box<dyn Dataset>| {
            assert_eq!(set.target(), TargetKind::Tokens);
            (set.batch(&(0..set.len()).collect::<Vec<usize>>()).unwrap(), set.classes().len())
        };
        for split in [Split::Train, Split::Test] {
            let plain = inputs(set("a.txt", "", split).unwrap());
            assert_eq!(inputs(set("a.jsonl", "text = \"body\"", split).unwrap()), plain);
            assert_eq!(inputs(set("a.parquet", "", split).unwrap()), plain);
            assert_eq!(inputs(set("a.parquet", "tokens = \"bytes\"", split).unwrap()).1, 256);
        }
        let problem = |name, more| set(name, more, Split::Train).err().unwrap().to_string();
        assert!(problem("a.jsonl", "").contains("line 1: unknown field `text`; known: body"));
        assert!(problem("a.jsonl", "target = \"numbers\"").contains("it holds text; remove it"));
        assert!(problem("a.txt", "mean = [1]").contains("`mean` means nothing for a data set of format `text`"));
        assert!(problem("a.parquet", "label = \"a\"").contains("`length` means nothing"));
    }
}
