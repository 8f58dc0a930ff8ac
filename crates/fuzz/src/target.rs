//! A target: something that reads bytes from outside, and how much memory it may take for it.

/// Something that reads bytes from outside.
pub struct Target {
    /// What it is called, and its folder in the corpus.
    pub name: &'static str,
    /// What is read.
    pub about: &'static str,
    /// Inputs that are read without complaint, or nearly so: what others are made of.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
    /// Words that inputs of this kind may hold.
    pub(crate) words: &'static [&'static str],
    /// Reads an input, panics if what comes of it is wrong, and says in words what it was.
    pub(crate) read: fn(&[u8]) -> String,
    /// How much memory reading may take, besides so many times the input.
    pub(crate) most_bytes: usize,
    /// How many times the input.
    pub(crate) times_input: usize,
    /// How many inputs an ordinary test makes up.
    pub n_quick: usize,
}
