//! Running a part of a network over some samples: up, down to its inputs, and only then the gradient by its own numbers, so
//! that whoever waits for the first gradient need not wait for the second.

use std::fmt;
use std::sync::Mutex;

use super::bucket_sink::ThreadGradient;
use super::executor::{Execution, Executor};
use super::layer::Mode;
use super::part::{Part, Rows};
use super::workspace::{Space, Workspace};

/// What a part keeps of some samples between the forward pass and the two backward ones. Any number of passes may be under way at once.
pub struct Pass {
    rows: Rows,
    mode: Mode,
    stage: Stage,
    inputs: Vec<f32>,
    output: Vec<f32>,
    /// For each thread its samples' values and gradients; none in a test.
    spaces: Vec<Mutex<Space>>,
}

/// How far a pass has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Up,
    Down,
}

impl Pass {
    /// The part's outputs, sample by sample.
    pub fn output(&self) -> &[f32] {
        &self.output
    }

    /// Which samples it is about.
    pub fn rows(&self) -> Rows {
        self.rows
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("rows", &self.rows).field("mode", &self.mode).field("stage", &self.stage).finish()
    }
}

impl Part {
    /// The forward pass, for these samples' inputs. In a test nothing but the output is kept.
    ///
    /// # Panics
    /// If the numbers are not this part's, or not as many as the samples need.
    pub fn forward(&self, values: &[f32], inputs: Vec<f32>, rows: Rows, mode: Mode, workspace: &mut Workspace) -> Pass {
        assert_eq!(inputs.len(), rows.n * self.input_len(), "the samples have another shape");
        workspace.prepare(&self.network, self.check(values));
        let spaces = workspace.take_spaces();
        let len = self.outputs().len();
        let output = Mutex::new(vec![0.0; rows.n * len]);
        let mut pass = Pass { rows, mode, stage: Stage::Up, inputs, output: Vec::new(), spaces };
        self.executor(values, &pass, false, workspace, |executor| {
            executor.up();
            let place = executor.samples.start * len..executor.samples.end * len;
            output.lock().expect("no thread panicked")[place].copy_from_slice(executor.output());
        });
        pass.output = output.into_inner().expect("no thread panicked");
        if mode == Mode::Test {
            pass.inputs = Vec::new();
            workspace.spare = Some(std::mem::take(&mut pass.spaces));
        }
        pass
    }

    /// The gradient by the part's inputs, from that by its outputs; nothing (an empty vector) if nobody wants it. Other columns
    /// of the same layers have their own, and the sum over all columns is the gradient.
    ///
    /// # Panics
    /// If the pass was a test, or began in a workspace with another number of threads, or the numbers are not as many as it needs.
    pub fn input_gradient(
        &self,
        values: &[f32],
        pass: &mut Pass,
        gradient: &[f32],
        is_wanted: bool,
        workspace: &mut Workspace,
    ) -> Vec<f32> {
        assert_eq!(gradient.len(), pass.output.len(), "a gradient is as long as the outputs");
        workspace.prepare(&self.network, self.check(values));
        let (len, input_len) = (self.outputs().len(), self.input_len());
        let result = Mutex::new(vec![0.0; if is_wanted { pass.rows.n * input_len } else { 0 }]);
        self.executor(values, pass, is_wanted, workspace, |executor| {
            let samples = executor.samples.clone();
            executor.turn(|_, delta| delta.copy_from_slice(&gradient[samples.start * len..samples.end * len]));
            executor.down_for_inputs();
            if is_wanted {
                let place = samples.start * input_len..samples.end * input_len;
                result.lock().expect("no thread panicked")[place].copy_from_slice(executor.gradient_by_input());
            }
        });
        pass.stage = Stage::Down;
        result.into_inner().expect("no thread panicked")
    }

    /// The gradient by the part's own numbers, after that by its inputs was taken; overwrites `gradient`, which is as long as
    /// `values`. Behind the trained numbers' gradient lies how far the running statistics are to move.
    ///
    /// # Panics
    /// If [`input_gradient`](Self::input_gradient) was not called before, or as that does.
    pub fn weight_gradient(&self, values: &[f32], pass: Pass, gradient: &mut [f32], workspace: &mut Workspace) {
        assert_eq!(pass.stage, Stage::Down, "the gradient by the inputs comes first");
        assert_eq!(gradient.len(), self.n_values(), "a gradient is as long as the parameters");
        workspace.make_prepared(&self.network);
        let mut others = workspace.take_parts(self.n_values());
        let parts = ThreadGradient::of_each(self.n_params(), gradient, &mut others, None);
        let parts: Vec<Mutex<ThreadGradient<'_>>> = parts.into_iter().map(Mutex::new).collect();
        self.executor(self.check(values), &pass, false, workspace, |executor| {
            executor.down_for_weights(&mut parts[executor.rank()].lock().expect("each thread has its own"));
        });
        drop(parts);
        workspace.add_up(gradient, &others);
        workspace.parts = others;
        workspace.spare = Some(pass.spaces);
    }

    /// Runs every thread with its own samples.
    fn executor(
        &self,
        values: &[f32],
        pass: &Pass,
        wants_input: bool,
        workspace: &Workspace,
        work: impl Fn(&mut Executor<'_>) + Sync,
    ) {
        assert!(!pass.spaces.is_empty(), "a test has no backward pass");
        assert_eq!(pass.spaces.len(), workspace.n_threads(), "a pass stays with as many threads as it began with");
        let Rows { first, n, .. } = pass.rows;
        let (network, inputs, mode) = (&self.network, &pass.inputs, pass.mode);
        let execution = Execution { network, values, inputs, n, first, mode, wants_input, workspace };
        workspace.team.run(|member| {
            let mut tools = workspace.spaces[member.rank].lock().expect("each thread has its own");
            let mut space = pass.spaces[member.rank].lock().expect("each thread has its own");
            space.swap_tools(&mut tools);
            work(&mut Executor::new(&execution, member, &mut space));
            space.swap_tools(&mut tools);
        });
    }

    fn check<'a>(&self, values: &'a [f32]) -> &'a [f32] {
        assert_eq!(values.len(), self.n_values(), "the parameters belong to another part");
        values
    }
}
