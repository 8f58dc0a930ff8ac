//! The events of a run that another process writes, as they come.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use nettorrent_history::Line;

/// Where we are in a file of events.
pub(crate) struct EventTail {
    path: PathBuf,
    n_bytes: u64,
}

impl EventTail {
    /// From its beginning.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, n_bytes: 0 }
    }

    /// What has come since; nothing if there is no file yet. What is damaged is left out.
    pub(crate) fn new_lines(&mut self) -> Vec<Line> {
        let Ok(text) = self.read() else { return Vec::new() };
        // A line without its end is still being written.
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        self.n_bytes += end as u64 + 1;
        text[..end].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.n_bytes))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::EventTail;

    #[test]
    fn lines_come_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut tail = EventTail::new(path.clone());
        assert!(tail.new_lines().is_empty());
        let line = r#"{"at_s":1.0,"event":"note","peer":0,"text":"one"}"#;
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "{line}\nno event\n{line}\n{}", &line[..10]).unwrap();
        assert_eq!(tail.new_lines().len(), 2);
        assert!(tail.new_lines().is_empty());
        writeln!(file, "{}", &line[10..]).unwrap();
        assert_eq!(tail.new_lines().len(), 1);
    }
}
