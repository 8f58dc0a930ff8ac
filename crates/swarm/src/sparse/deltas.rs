//! Some elements of a vector, each with +τ or −τ.

/// The most elements a vector may have: an index takes 31 bits.
pub(crate) const MOST_VALUES: usize = 1 << 31;

/// Some elements of a vector, each with +τ or −τ, in ascending order.
///
/// What is in here always fits the vector it was made for: a message that does not leaves it empty. One that is used again
/// for each batch allocates nothing.
///
/// ```
/// use nettorrent_swarm::sparse::Deltas;
/// let mut residual = vec![0.0, 0.5, -0.25, 0.0];
/// let mut deltas = Deltas::new();
/// deltas.scan_with(&mut residual, &[0.125, 0.25, -0.5, 0.0], 0.5);
/// assert_eq!(deltas.iter().collect::<Vec<_>>(), [(1, 0.5), (2, -0.5)]);
/// assert_eq!(residual, [0.125, 0.25, -0.25, 0.0]);
///
/// let message = deltas.encode();
/// let mut received = Deltas::new();
/// received.decode(&message, 4)?;
/// let mut values = vec![1.0; 4];
/// received.add_to(&mut values);
/// assert_eq!(values, [1.0, 1.5, 0.5, 1.0]);
/// # Ok::<(), nettorrent_swarm::strategy::Malformed>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Deltas {
    /// How many elements the vector has.
    pub(super) n_values: usize,
    pub(super) tau: f32,
    /// `index << 1 | sign`, where 1 is plus; indices ascend strictly and are below `n_values`.
    pub(super) marks: Vec<u32>,
}

impl Default for Deltas {
    fn default() -> Self {
        Self { n_values: 0, tau: 1.0, marks: Vec::new() }
    }
}

impl Deltas {
    /// None, for a vector without elements: to be filled by a scan or from a message.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many elements have a delta.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether no element has a delta.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The size of each delta.
    pub fn tau(&self) -> f32 {
        self.tau
    }

    /// How many elements the vector has.
    pub fn n_values(&self) -> usize {
        self.n_values
    }

    /// Each index with its delta, in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, f32)> + '_ {
        self.marks.iter().map(|&mark| (index(mark), signed(mark, self.tau)))
    }

    /// Empty, for a vector of this length.
    pub(super) fn reset(&mut self, n_values: usize, tau: f32) {
        assert!(n_values <= MOST_VALUES, "{n_values} elements have indices of more than 31 bits");
        self.n_values = n_values;
        self.tau = tau;
        self.marks.clear();
    }
}

/// Which element a mark is for.
pub(super) fn index(mark: u32) -> usize {
    (mark >> 1) as usize
}

/// `tau` with the sign of a mark.
pub(super) fn signed(mark: u32, tau: f32) -> f32 {
    f32::from_bits(tau.to_bits() ^ ((!mark & 1) << 31))
}

/// The numbers that a message's τ may be.
pub(super) fn is_threshold(tau: f32) -> bool {
    tau.is_finite() && tau > 0.0
}
