//! The studies that come with the program.

use std::path::Path;

use nettorrent_engine::nearest::nearest;

use crate::study::{Form, Study, StudyError};

/// A study that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! studies {
    ($($name:literal),* $(,)?) => {
        &[$(Ready { name: $name, text: include_str!(concat!("../studies/", $name, ".toml")) }),*]
    };
}

/// All of them, sorted by name.
pub static READY: &[Ready] =
    studies!["averaging", "links", "nettorrent", "predicted", "splits", "thousand", "threshold", "workers"];

/// The study that a user means: one that comes with the program, or else a file; a file of such a name is meant by its path, as
/// `./averaging`.
pub fn find(name: &str, form: Form) -> Result<Study, StudyError> {
    let path = Path::new(name);
    let is_ready = READY.iter().any(|study| study.name == name);
    let is_file = !is_ready && (path.is_file() || path.extension().is_some());
    if is_file { Study::open(path, form) } else { ready(name)?.open(form) }
}

/// The one of this name.
fn ready(name: &str) -> Result<&'static Ready, StudyError> {
    READY.iter().find(|ready| ready.name == name).ok_or_else(|| {
        let names: Vec<&str> = READY.iter().map(|ready| ready.name).collect();
        let hint = nearest(name, &names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        let problem = format!("is neither a file nor a study that comes with the program: {}{hint}", names.join(", "));
        StudyError::Value { study: name.to_owned(), problem }
    })
}

impl Ready {
    /// Reads it.
    pub fn open(&self, form: Form) -> Result<Study, StudyError> {
        Study::parse(&format!("{}.toml", self.name), self.text, Path::new(""), form)
    }
}

#[cfg(test)]
mod tests {
    use super::{READY, ready};
    use crate::plan::Plan;
    use crate::study::Form;

    #[test]
    fn every_study_can_be_planned_in_both_forms() {
        assert!(READY.is_sorted_by_key(|ready| ready.name));
        for ready in READY {
            for form in [Form::Full, Form::Quick] {
                let study = ready.open(form).unwrap();
                let plan = Plan::new(&study).unwrap_or_else(|error| panic!("{}: {error}", ready.name));
                assert_eq!(study.head.name, ready.name);
                assert!(!study.head.about.is_empty() && !plan.runs.is_empty(), "{}", ready.name);
                assert!(form == Form::Full || plan.runs.iter().all(|run| run.facts.data == "digits"), "{}", ready.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        assert!(ready("avereging").unwrap_err().to_string().contains("did you mean `averaging`?"));
    }
}
