//! A checkpoint that is written piece by piece, as the parts of a network come in: nobody ever holds all of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use nettorrent_files::PartialFolder;

use super::checksums;
use super::error::CheckpointError;
use super::file_layout::FileLayout;
use super::progress::Progress;
use super::share::Share;
use super::state::Vectors;
use super::weights;
use crate::model::{Layout, NamedTensor, Part};
use crate::optimizer::{Optimizer, OptimizerSpec};

/// The model's file in a checkpoint.
pub const MODEL_FILE: &str = "model.safetensors";
/// Beside it, what is needed to go on.
pub(super) const STATE_FILE: &str = "state.safetensors";

/// A checkpoint of a whole network that is being written. It appears when it is finished; dropped before, it leaves nothing
/// behind.
pub struct PieceWriter {
    tensors: Vec<NamedTensor>,
    n_params: usize,
    n_values: usize,
    vectors: Vectors,
    progress: Progress,
    model: (FileLayout, File),
    /// The state's file says how many steps were taken, so it begins with the first part.
    state: Option<State>,
    written: Written,
    // The last, so that its files are closed before it goes.
    folder: PartialFolder,
}

struct State {
    n_steps: u64,
    layout: FileLayout,
    file: File,
}

impl PieceWriter {
    /// Begins a checkpoint as a folder, which must not exist yet. The swarm's state vectors come with the parts, each with this
    /// many; those in `progress` are not looked at.
    pub fn create(
        folder: &Path,
        layout: &Layout,
        optimizer: &OptimizerSpec,
        progress: &Progress,
        n_swarm_vectors: usize,
    ) -> Result<Self, CheckpointError> {
        let (n_params, n_values) = (layout.n_params(), layout.n_values());
        let failed = CheckpointError::save(folder);
        if folder.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let folder = PartialFolder::begin_own(folder).map_err(&failed)?;
        let (file_layout, header) = weights::file_layout(layout.tensors());
        let model = create(&folder, MODEL_FILE, &header, file_layout.n_bytes()).map_err(&failed)?;
        Ok(Self {
            tensors: layout.tensors().to_vec(),
            n_params,
            n_values,
            vectors: Vectors::new(optimizer, n_swarm_vectors, n_params, n_values),
            progress: progress.without_vectors(),
            model: (file_layout, model),
            state: None,
            written: Written::default(),
            folder,
        })
    }

    /// Writes a part's numbers to their places. After an error they count as missing, and may be put again.
    pub fn put(
        &mut self,
        part: &Part,
        values: &[f32],
        optimizer: &Optimizer,
        vectors: &[Arc<Vec<f32>>],
    ) -> Result<(), CheckpointError> {
        self.put_share(&Share::of(part), values, optimizer, vectors)
    }

    pub(super) fn put_share(
        &mut self,
        share: &Share,
        values: &[f32],
        optimizer: &Optimizer,
        vectors: &[Arc<Vec<f32>>],
    ) -> Result<(), CheckpointError> {
        if !share.fits(self.n_params, self.n_values) || values.len() != share.n_values {
            return Err(self.refusal("a part of it belongs to another model"));
        }
        if let Some(problem) = self.vectors.refuse(share, optimizer, vectors) {
            return Err(self.refusal(problem));
        }
        if !share.ranges().all(|range| self.written.is_free(&range)) {
            return Err(self.refusal("two of its parts hold the same numbers"));
        }
        let n_steps = optimizer.state().0;
        if self.state.as_ref().is_some_and(|state| state.n_steps != n_steps) {
            return Err(self.refusal("its parts have taken different numbers of steps"));
        }
        self.begin_state(n_steps)?;
        self.write(share, values, optimizer, vectors).map_err(CheckpointError::save(self.folder.target()))?;
        share.ranges().for_each(|range| self.written.add(range));
        Ok(())
    }

    /// Brings the checkpoint to its place, if all of it is there.
    pub fn finish(self) -> Result<(), CheckpointError> {
        let n_missing = self.n_values - self.written.len();
        if self.state.is_none() || n_missing > 0 {
            let problem = format!("{n_missing} of {} numbers are missing", self.n_values);
            return Err(self.refusal(&problem));
        }
        let Self { folder, model, state, .. } = self;
        // Closed first: some systems rename no folder with an open file in it.
        drop((model, state));
        let target = folder.target().to_owned();
        let failed = CheckpointError::save(&target);
        checksums::write(folder.contents(), &[MODEL_FILE, STATE_FILE]).map_err(&failed)?;
        folder.finish().map_err(failed)
    }

    fn begin_state(&mut self, n_steps: u64) -> Result<(), CheckpointError> {
        if self.state.is_none() {
            let (layout, header) = self.vectors.layout(n_steps, &self.progress);
            let file = create(&self.folder, STATE_FILE, &header, layout.n_bytes());
            let file = file.map_err(CheckpointError::save(self.folder.target()))?;
            self.state = Some(State { n_steps, layout, file });
        }
        Ok(())
    }

    fn write(
        &mut self,
        share: &Share,
        values: &[f32],
        optimizer: &Optimizer,
        vectors: &[Arc<Vec<f32>>],
    ) -> io::Result<()> {
        let (layout, file) = &mut self.model;
        weights::write(file, layout, &self.tensors, share, values)?;
        let State { layout, file, .. } = self.state.as_mut().expect("it was begun before");
        self.vectors.write(file, layout, share, optimizer, vectors)
    }

    fn refusal(&self, problem: &str) -> CheckpointError {
        CheckpointError::malformed(
            self.folder.target(),
            format!("cannot be written: {problem}; earlier checkpoints are untouched"),
        )
    }
}

/// A file that begins with these bytes and is as long as it will be; the rest of it is to be written.
fn create(folder: &PartialFolder, name: &str, beginning: &[u8], n_bytes: u64) -> io::Result<File> {
    let mut file = File::create(folder.contents().join(name))?;
    file.write_all(beginning)?;
    file.set_len(n_bytes)?;
    Ok(file)
}

/// Which numbers of the whole vector were written: ranges that do not touch, by their starts.
#[derive(Default)]
struct Written(BTreeMap<usize, usize>);

impl Written {
    /// Whether nothing of this was written yet.
    fn is_free(&self, range: &Range<usize>) -> bool {
        self.0.range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start)
    }

    fn add(&mut self, Range { mut start, mut end }: Range<usize>) {
        if let Some((&before, _)) = self.0.range(..start).next_back().filter(|&(_, &end)| end == start) {
            start = before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.0.insert(start, end);
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use safetensors::tensor::{Dtype, TensorView};

    use super::{CheckpointError, MODEL_FILE, PieceWriter, Progress, STATE_FILE, Share, Written};
    use crate::checkpoint::{load, load_share, save};
    use crate::model::{Layout, Network, Span, zoo};
    use crate::optimizer::{Optimizer, OptimizerKind, OptimizerSpec};
    use crate::rng::Rng;

    /// What one peer holds of a network: some of its numbers, or all.
    struct Held {
        spans: Vec<Span>,
        values: Vec<f32>,
        optimizer: Optimizer,
        progress: Progress,
    }

    impl Held {
        fn share(&self) -> Share {
            Share::new(self.spans.clone(), self.optimizer.state().1.next().map_or(0, |(_, vector)| vector.len()))
        }

        fn writer(&self, folder: &Path, layout: &Layout) -> Result<PieceWriter, CheckpointError> {
            let n_state_vectors = self.progress.swarm_vectors.len();
            PieceWriter::create(folder, layout, self.optimizer.spec(), &self.progress, n_state_vectors)
        }

        fn put(&self, writer: &mut PieceWriter) -> Result<(), CheckpointError> {
            writer.put_share(&self.share(), &self.values, &self.optimizer, &self.progress.swarm_vectors)
        }

        /// Reads the same from a checkpoint and compares.
        fn expect_in(&self, folder: &Path, layout: &Layout) {
            let n_params = self.share().n_params;
            let mut optimizer = Optimizer::new(self.optimizer.spec().clone(), n_params);
            let (values, progress) = load_share(folder, layout, &self.share(), &mut optimizer).unwrap();
            assert!(values == self.values && progress == self.progress && optimizer == self.optimizer);
        }

        /// Some of this.
        fn take(&self, spans: &[Span]) -> Self {
            let take = |vector: &[f32]| -> Vec<f32> {
                let spans = spans.iter().filter(|span| span.whole < vector.len());
                spans.flat_map(|span| &vector[span.whole..][..span.len]).copied().collect()
            };
            let (n_steps, vectors) = self.optimizer.state();
            let vectors = vectors.map(|(_, vector)| take(vector)).collect();
            let optimizer = remembering(self.optimizer.spec(), n_steps, vectors);
            let swarm_vectors = self.progress.swarm_vectors.iter().map(|vector| Arc::new(take(vector))).collect();
            let progress = Progress { swarm_vectors, ..self.progress.clone() };
            Self { spans: spans.to_vec(), values: take(&self.values), optimizer, progress }
        }
    }

    fn remembering(spec: &OptimizerSpec, n_steps: u64, vectors: Vec<Vec<f32>>) -> Optimizer {
        let mut optimizer = Optimizer::new(spec.clone(), vectors[0].len());
        let mut vectors = vectors.into_iter();
        assert!(optimizer.restore(n_steps, |_| vectors.next()), "as many as the rule remembers");
        optimizer
    }

    /// A model, and a state of it in which no two numbers of a vector are alike.
    fn whole(model: &str, kind: OptimizerKind, n_state_vectors: usize) -> (Layout, Held) {
        let layout = Network::new(&zoo::describe(model, None, None).unwrap()).unwrap().layout();
        let n = layout.n_values();
        let vector = |k: usize, len: usize| -> Vec<f32> { (0..len).map(|i| (i * 8 + k) as f32).collect() };
        let spec = OptimizerSpec { kind, ..OptimizerSpec::default() };
        let vectors = (0..spec.state_names().len()).map(|k| vector(k + 1, layout.n_params())).collect();
        let optimizer = remembering(&spec, 1234, vectors);
        let swarm_vectors = (0..n_state_vectors).map(|k| Arc::new(vector(k + 4, n))).collect();
        let swarm = Some(serde_json::json!({ "z": 1, "a": [2] }));
        let progress = Progress { seed: 3, step: 77, epoch: 1, swarm, swarm_vectors, ..Progress::default() };
        let spans = vec![Span { mine: 0, whole: 0, len: n }];
        (layout, Held { spans, values: vector(0, n), optimizer, progress })
    }

    /// The whole vector cut at random and dealt out, which is harder than any part of a model.
    fn deal(layout: &Layout, whole: &Held, most_len: usize) -> Vec<Held> {
        let mut rng = Rng::new(5);
        let mut shares = vec![Vec::new(); 3];
        let mut lens = [0; 3];
        let mut start = 0;
        while start < layout.n_values() {
            // Trained numbers come before statistics in every share.
            let border = if start < layout.n_params() { layout.n_params() } else { layout.n_values() };
            let (k, len) = (rng.below(3), (1 + rng.below(most_len)).min(border - start));
            shares[k].push(Span { mine: lens[k], whole: start, len });
            (lens[k], start) = (lens[k] + len, start + len);
        }
        shares.iter().map(|spans| whole.take(spans)).collect()
    }

    fn small() -> (Layout, Held, Vec<Held>) {
        let (layout, whole) = whole("digits-cnn", OptimizerKind::Adam, 1);
        let shares = deal(&layout, &whole, 100);
        (layout, whole, shares)
    }

    #[test]
    fn pieces_make_the_bytes_of_the_whole_and_come_back() {
        let cases = [
            ("digits-cnn", OptimizerKind::Rmsprop, 0, 50),
            ("mlp", OptimizerKind::Adam, 1, 5000),
            ("resnet20", OptimizerKind::Adagrad, 2, 500),
        ];
        for (model, kind, n_state_vectors, most_len) in cases {
            let root = tempfile::tempdir().unwrap();
            let (layout, whole) = whole(model, kind, n_state_vectors);
            let (at_once, in_pieces) = (root.path().join("at-once"), root.path().join("in-pieces"));
            save(&at_once, &layout, &whole.values, &whole.optimizer, &whole.progress).unwrap();
            let mut writer = whole.writer(&in_pieces, &layout).unwrap();
            let shares = deal(&layout, &whole, most_len);
            shares.iter().rev().for_each(|share| share.put(&mut writer).unwrap());
            assert!(!in_pieces.exists(), "nobody sees it before it is finished");
            writer.finish().unwrap();
            for name in [MODEL_FILE, STATE_FILE] {
                let [expected, found] = [&at_once, &in_pieces].map(|folder| fs::read(folder.join(name)).unwrap());
                assert!(expected == found, "{name} of {model} differs");
            }
            shares.iter().for_each(|share| share.expect_in(&in_pieces, &layout));
            whole.expect_in(&in_pieces, &layout);
        }
    }

    #[test]
    fn a_checkpoint_is_what_the_safetensors_library_writes() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        let (layout, whole) = whole("digits-cnn", OptimizerKind::Adam, 1);
        save(&folder, &layout, &whole.values, &whole.optimizer, &whole.progress).unwrap();
        let serialize = |tensors: Vec<(&str, Vec<usize>, Vec<u8>)>, note: (&str, &str)| {
            let view = |shape: &Vec<usize>, bytes| TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap();
            let views = tensors.iter().map(|(name, shape, bytes)| (*name, view(shape, bytes)));
            let notes = [(note.0.to_owned(), note.1.to_owned())].into_iter().collect();
            safetensors::serialize(views, Some(notes)).unwrap()
        };
        let model = layout.tensors().iter().map(|named| {
            let numbers = &whole.values[named.range.clone()];
            let bytes = named.tensor.places().iter().flat_map(|&place| numbers[place].to_le_bytes()).collect();
            (named.name.as_str(), named.tensor.shape.clone(), bytes)
        });
        assert!(fs::read(folder.join(MODEL_FILE)).unwrap() == serialize(model.collect(), ("format", "pt")));
        let of_swarm = ("swarm.memory.0", whole.progress.swarm_vectors[0].as_slice());
        let state =
            whole.optimizer.state().1.chain([of_swarm]).map(|(name, vector)| {
                (name, vec![vector.len()], vector.iter().flat_map(|x| x.to_le_bytes()).collect())
            });
        let progress = serde_json::to_string(&whole.progress).unwrap();
        let note = format!(r#"{{"format":"nettorrent-state/1","optimizer_steps":1234,"progress":{progress}}}"#);
        assert!(fs::read(folder.join(STATE_FILE)).unwrap() == serialize(state.collect(), ("nettorrent", &note)));
    }

    #[test]
    fn what_is_missing_twice_or_of_another_run_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        let (layout, whole, shares) = small();
        let problem = |result: Result<(), CheckpointError>, expected: &str| {
            let problem = result.unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        };
        problem(whole.writer(&folder, &layout).unwrap().finish(), "numbers are missing");
        let mut writer = whole.writer(&folder, &layout).unwrap();
        shares[0].put(&mut writer).unwrap();
        shares[2].put(&mut writer).unwrap();
        problem(shares[0].put(&mut writer), "the same numbers");
        problem(whole.put(&mut writer), "the same numbers");
        let mut later = whole.take(&shares[1].spans);
        *later.optimizer.state_mut().0 += 1;
        problem(later.put(&mut writer), "different numbers of steps");
        let mut forgetful = whole.take(&shares[1].spans);
        forgetful.progress.swarm_vectors.clear();
        problem(forgetful.put(&mut writer), "state vectors");
        let mut short = whole.take(&shares[1].spans);
        short.values.pop();
        problem(short.put(&mut writer), "another model");
        let mut other = whole.take(&shares[1].spans);
        let spec = OptimizerSpec { kind: OptimizerKind::Adagrad, ..OptimizerSpec::default() };
        other.optimizer = Optimizer::new(spec, other.share().n_params);
        problem(other.put(&mut writer), "another optimizer");
        problem(writer.finish(), &format!("{} of {} numbers are missing", shares[1].values.len(), layout.n_values()));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing is left of it");
    }

    #[test]
    fn a_checkpoint_that_is_there_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        let (layout, whole, shares) = small();
        save(&folder, &layout, &whole.values, &whole.optimizer, &whole.progress).unwrap();
        assert!(whole.writer(&folder, &layout).is_err());
        shares[1].expect_in(&folder, &layout);
    }

    #[test]
    fn damaged_files_are_refused_by_shares_as_by_the_whole() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        let (layout, whole, shares) = small();
        save(&folder, &layout, &whole.values, &whole.optimizer, &whole.progress).unwrap();
        let load_both = || {
            let mut optimizers = [&whole, &shares[0]].map(|held| held.optimizer.clone());
            let all = load(&folder, &layout, &mut optimizers[0]).map(|_| ());
            let some = load_share(&folder, &layout, &shares[0].share(), &mut optimizers[1]).map(|_| ());
            [all, some].map(|result| result.map_err(|error| error.to_string()))
        };
        assert_eq!(load_both(), [Ok(()), Ok(())]);
        for name in [MODEL_FILE, STATE_FILE] {
            let path = folder.join(name);
            let bytes = fs::read(&path).unwrap();
            let huge = [u64::MAX.to_le_bytes().as_slice(), &bytes[8..]].concat();
            let longer = [bytes.as_slice(), &[0; 4]].concat();
            let text = String::from_utf8_lossy(&bytes[8..]).find("F32").unwrap() + 8;
            let integers = [&bytes[..text], b"I32", &bytes[text + 3..]].concat();
            for damaged in [&[], &bytes[..7], &bytes[..60], &bytes[..bytes.len() - 4], &huge, &longer, &integers] {
                fs::write(&path, damaged).unwrap();
                let [all, some] = load_both();
                assert!(all.is_err() && all == some, "{name}: {all:?} and {some:?}");
            }
            fs::remove_file(&path).unwrap();
            let [all, some] = load_both();
            assert!(all.is_err() && all == some, "{name}: {all:?} and {some:?}");
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(load_both(), [Ok(()), Ok(())]);
    }

    #[test]
    fn what_was_written_is_counted_once() {
        let mut written = Written::default();
        for range in [4..6, 10..12, 6..8, 0..4] {
            assert!(written.is_free(&range));
            written.add(range);
        }
        assert_eq!((written.len(), written.0.len()), (10, 2));
        for range in [0..1, 7..9, 9..11, 11..20, 0..20, 8..11] {
            assert!(!written.is_free(&range), "{range:?}");
        }
        assert!(written.is_free(&(8..10)));
        written.add(8..10);
        assert_eq!((written.len(), written.0.len()), (12, 1));
    }
}
