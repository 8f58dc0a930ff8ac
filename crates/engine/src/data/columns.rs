//! The columns of a table: which are learnt from, and which are asked for.

use serde::{Deserialize, Serialize};

use super::names;

/// A column, by its place (from 0) or by its name in the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// By place, the first being 0.
    Index(usize),
    /// By name; where no column has the name and it is a number, by place.
    Name(String),
}

/// One column or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Columns {
    /// One.
    One(Column),
    /// Several.
    Several(Vec<Column>),
}

/// What is to be learned from a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The class that a column names.
    #[default]
    Class,
    /// Which of several columns are 1 and not 0.
    Labels,
    /// The numbers of one or several columns.
    Numbers,
}

/// What is asked about a table: which columns, and how they are understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The columns; the last if none is named.
    pub label: Option<&'a Columns>,
    /// How they are understood.
    pub target: Target,
}

/// What a file's columns are called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heading {
    /// For each column.
    pub(crate) names: Vec<String>,
    /// Whether the file says so. Otherwise they are called by their places.
    pub(crate) is_named: bool,
}

impl Heading {
    /// So many columns without names.
    pub(crate) fn places(n: usize) -> Self {
        Self { names: (0..n).map(|column| column.to_string()).collect(), is_named: false }
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The feature of this place in a sample.
    Feature(usize),
    /// What is asked for, the first, the second and so on.
    Asked(usize),
    /// Nothing of interest.
    Ignored,
}

/// A file's columns and what they hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Roles {
    heading: Heading,
    roles: Vec<Role>,
}

impl Roles {
    /// The columns of a table to learn from. Problems are told without the path, which the caller knows.
    pub(crate) fn new(heading: Heading, asked: Asked<'_>) -> Result<Self, String> {
        let names = &heading.names;
        let wanted: Vec<Option<&Column>> = match asked.label {
            None => vec![None],
            Some(Columns::One(column)) => vec![Some(column)],
            Some(Columns::Several(columns)) => columns.iter().map(Some).collect(),
        };
        if wanted.is_empty() || (asked.target == Target::Class && wanted.len() > 1) {
            return Err(format!(
                "`label` names {} columns; for classes it names one, for `target = \"labels\"` or `\"numbers\"` one or several",
                wanted.len()
            ));
        }
        let mut places = vec![None; names.len()];
        for (place, column) in wanted.into_iter().enumerate() {
            let column = find_column(names, column)?;
            if places[column].replace(place).is_some() {
                return Err(format!("`label` names the column `{}` twice", names[column]));
            }
        }
        let mut features = 0..;
        let role = |place: &Option<usize>| match place {
            Some(place) => Role::Asked(*place),
            None => features.next().map_or(Role::Ignored, Role::Feature),
        };
        let roles = places.iter().map(role).collect();
        let roles = Self { heading, roles };
        if roles.n_features() == 0 {
            return Err("`label` names all columns; at least one must be left to learn from".to_owned());
        }
        Ok(roles)
    }

    /// Columns of nothing but features, without names.
    pub(crate) fn features(n: usize) -> Self {
        Self { heading: Heading::places(n), roles: (0..n).map(Role::Feature).collect() }
    }

    /// The columns of a file that is no part of the table: the features are found by name where both have names, else by place.
    pub(crate) fn outside(&self, heading: Heading) -> Result<Self, String> {
        let known = &self.heading.names;
        let is_unique = |name: &String| known.iter().filter(|other| *other == name).count() == 1;
        let roles = if heading.is_named && self.heading.is_named && known.iter().all(is_unique) {
            self.by_name(&heading.names)?
        } else {
            self.by_place(heading.names.len())?
        };
        Ok(Self { heading, roles })
    }

    fn by_name(&self, names: &[String]) -> Result<Vec<Role>, String> {
        let mut roles = vec![Role::Ignored; names.len()];
        for (name, &role) in self.heading.names.iter().zip(&self.roles) {
            if !matches!(role, Role::Feature(_)) {
                continue;
            }
            let mut found = names.iter().enumerate().filter(|(_, other)| *other == name);
            match (found.next(), found.next()) {
                (Some((column, _)), None) => roles[column] = role,
                (None, _) => {
                    let there = names.join(", ");
                    return Err(format!(
                        "the column `{name}` is missing, which the model was trained on; there are: {there}"
                    ));
                }
                (Some(_), Some(_)) => return Err(format!("two columns are called `{name}`; leave one of them out")),
            }
        }
        Ok(roles)
    }

    fn by_place(&self, n_columns: usize) -> Result<Vec<Role>, String> {
        let (n_features, n_learnt) = (self.n_features(), self.roles.len());
        if n_columns == n_features {
            return Ok((0..n_features).map(Role::Feature).collect());
        }
        if n_columns != n_learnt {
            let with_asked = match n_learnt - n_features {
                0 => String::new(),
                n => format!(", or {n_learnt} with the {n} that it predicts"),
            };
            return Err(format!("has {n_columns} columns; the model was trained on {n_features}{with_asked}"));
        }
        let role = |role: &Role| if let Role::Feature(_) = role { *role } else { Role::Ignored };
        Ok(self.roles.iter().map(role).collect())
    }

    /// What each column is called.
    pub(crate) fn names(&self) -> &[String] {
        &self.heading.names
    }

    /// What each column holds.
    pub(crate) fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The columns that are asked for, in the order in which they were named.
    pub(crate) fn asked_names(&self) -> Vec<String> {
        let mut asked: Vec<(usize, &String)> = self
            .roles
            .iter()
            .zip(&self.heading.names)
            .filter_map(|(role, name)| match role {
                Role::Asked(place) => Some((*place, name)),
                Role::Feature(_) | Role::Ignored => None,
            })
            .collect();
        asked.sort();
        asked.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// How many columns are features.
    pub(crate) fn n_features(&self) -> usize {
        self.roles.iter().filter(|role| matches!(role, Role::Feature(_))).count()
    }
}

fn find_column(names: &[String], wanted: Option<&Column>) -> Result<usize, String> {
    let by_place = |place: usize| {
        if place < names.len() {
            return Ok(place);
        }
        Err(format!("there is no column {place} for the label: they are 0 to {}", names.len() - 1))
    };
    match wanted {
        None => Ok(names.len() - 1),
        Some(&Column::Index(place)) => by_place(place),
        Some(Column::Name(name)) => match (names.iter().position(|other| other == name), name.parse()) {
            (Some(place), _) => Ok(place),
            (None, Ok(place)) => by_place(place),
            (None, Err(_)) => {
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                Err(names::unknown("label column", name, &known))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Column, Columns, Heading, Role, Roles, Target};

    fn named(names: &str) -> Heading {
        Heading { names: names.split(',').map(ToOwned::to_owned).collect(), is_named: true }
    }

    fn learnt(heading: Heading, label: usize) -> Roles {
        let label = Columns::One(Column::Index(label));
        Roles::new(heading, Asked { label: Some(&label), target: Target::Class }).unwrap()
    }

    const BOTH: [Role; 2] = [Role::Feature(0), Role::Feature(1)];

    #[test]
    fn features_are_found_by_name_where_both_have_names() {
        let table = learnt(named("a,kind,b"), 1);
        let outside = |names| table.outside(named(names)).map(|roles| roles.roles);
        assert_eq!(outside("a,b").unwrap(), BOTH);
        assert_eq!(outside("b,note,kind,a").unwrap(), [BOTH[1], Role::Ignored, Role::Ignored, BOTH[0]]);
        assert!(outside("a,kind").unwrap_err().contains("the column `b` is missing"));
        assert!(outside("a,b,b").unwrap_err().contains("two columns are called `b`"));
    }

    #[test]
    fn else_by_place() {
        let named_table = learnt(named("a,kind,b"), 1);
        let plain = learnt(Heading::places(3), 1);
        let alike = learnt(named("a,kind,a"), 1);
        for (table, others) in [
            (&named_table, [Heading::places(2), Heading::places(3), Heading::places(4)]),
            (&plain, [named("x,y"), named("x,y,z"), named("x,y,z,u")]),
            (&alike, [named("a,a"), named("a,kind,a"), named("a,kind,a,b")]),
        ] {
            let [features, all, more] = others.map(|heading| table.outside(heading));
            assert_eq!(features.unwrap().roles, BOTH);
            assert_eq!(all.unwrap().roles, [BOTH[0], Role::Ignored, BOTH[1]]);
            let problem = more.unwrap_err();
            assert_eq!(problem, "has 4 columns; the model was trained on 2, or 3 with the 1 that it predicts");
        }
        let problem = Roles::features(2).outside(Heading::places(3)).unwrap_err();
        assert_eq!(problem, "has 3 columns; the model was trained on 2");
    }
}
