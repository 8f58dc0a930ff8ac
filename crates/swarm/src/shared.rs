//! A list that copies share until one of them is changed: what thousands of peers in one process hold alike lies in memory once.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list that copies share until one of them is changed. In every other way it is a [`Vec`], also as bytes.
#[derive(Clone, Eq)]
pub struct Shared<T>(Arc<Vec<T>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(list: Vec<T>) -> Self {
        Self(Arc::new(list))
    }
}

impl<T> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        items.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T> Deref for Shared<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::Shared;

    #[test]
    fn copies_share_until_one_is_changed() {
        let first: Shared<u32> = vec![1, 2].into();
        let mut second = first.clone();
        assert!(std::ptr::eq(first.as_slice(), second.as_slice()));
        second[0] = 7;
        assert_eq!((first.as_slice(), second.as_slice()), (&[1, 2][..], &[7, 2][..]));
        assert!(first != second && first == vec![1, 2].into());
    }

    #[test]
    fn it_travels_as_a_list_does() {
        let list: Shared<u64> = (0..300).collect();
        assert_eq!(postcard::to_allocvec(&list).unwrap(), postcard::to_allocvec(&*list).unwrap());
        assert_eq!(serde_json::from_str::<Shared<u64>>(&serde_json::to_string(&list).unwrap()).unwrap(), list);
    }
}
