//! The one binary: parses, wires together, prints.

fn main() {}
