//! A report as plain data: sections of paragraphs, tables and figures, before anybody decides how they look.

/// A whole report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    /// Its title.
    pub(crate) title: String,
    /// The question that it answers.
    pub(crate) question: String,
    /// Its sections, in their order.
    pub(crate) sections: Vec<Section>,
}

/// A part with a title.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// What links to it are called.
    pub(crate) id: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    /// What is in it.
    pub(crate) blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// Sentences.
    Paragraph(String),
    /// Sentences, one a point.
    List(Vec<String>),
    /// Figures that belong together.
    Figures(Vec<Figure>),
    /// A table.
    Table(Table),
    /// Something to copy.
    Code(String),
}

/// A figure and what is to be said about it.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The name of its file, without its ending.
    pub(crate) name: String,
    /// What to look at.
    pub(crate) caption: String,
    /// The figure.
    pub(crate) svg: String,
}

/// A table; its first column names things, the others are numbers or words about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// What it shows.
    pub(crate) caption: String,
    /// The columns' names.
    pub(crate) head: Vec<String>,
    /// The cells, row by row.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(caption: impl Into<String>, head: &[&str]) -> Self {
        Self { caption: caption.into(), head: head.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// The table without columns in which no row says anything.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let says = |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell != NOTHING));
        let kept: Vec<usize> = (0..self.head.len()).filter(|column| *column == 0 || says(*column)).collect();
        let keep = |row: &Vec<String>| kept.iter().filter_map(|column| row.get(*column).cloned()).collect();
        self.rows = self.rows.iter().map(keep).collect();
        self.head = keep(&self.head);
        self
    }
}

/// What stands where there is nothing to say.
pub(crate) const NOTHING: &str = "–";
