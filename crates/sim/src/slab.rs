//! A place for things that are under way, each named by a small number that is used again when it is gone.

/// Things by their numbers.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(thing);
                number
            }
            None => {
                self.places.push(Some(thing));
                u32::try_from(self.places.len() - 1).expect("more than u32::MAX entries")
            }
        }
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn numbers_are_used_again_and_only_once() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_ne!(a, b);
        assert_eq!((slab.remove(a), slab.remove(a)), (Some('a'), None));
        assert_eq!(slab.insert('c'), a);
        assert_eq!((slab.get_mut(a).copied(), slab.get_mut(b).copied()), (Some('c'), Some('b')));
    }
}
