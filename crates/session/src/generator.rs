//! Text from a trained language model, token by token.

use std::path::Path;

use nettorrent_engine::checkpoint::load_weights;
use nettorrent_engine::data::{Split, TextCodec};
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::model::{Decoder, ModelSpec};
use nettorrent_engine::rng::Rng;

use crate::error::SessionError;
use crate::open::{data_spec, open_data};
use crate::run_folder::RunFolder;

/// How a token is drawn from those that the model thinks likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Above 1 for more surprising texts, below for more likely ones; with 0 it is always the likeliest token.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; 0 for all.
    pub top_k: usize,
    /// Only the likeliest tokens are drawn from that have this share of the probability together; 1 for all.
    pub top_p: f64,
}

impl Default for Choice {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 0, top_p: 0.95 }
    }
}

impl Choice {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), SessionError> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(SessionError::Run(format!("a temperature of {} is not 0 or more", self.temperature)));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(SessionError::Run(format!("a top-p of {} is not above 0 and at most 1", self.top_p)));
        }
        Ok(())
    }

    /// Draws a token by the scores of all.
    fn draw(&self, scores: &[f32], rng: &mut Rng) -> u32 {
        let mut tokens: Vec<usize> = (0..scores.len()).collect();
        tokens.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        if self.temperature == 0.0 {
            return tokens[0] as u32;
        }
        if self.top_k > 0 {
            tokens.truncate(self.top_k);
        }
        let highest = f64::from(scores[tokens[0]]);
        let weight = |token: &usize| ((f64::from(scores[*token]) - highest) / self.temperature).exp();
        let weights: Vec<f64> = tokens.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let n_likely = weights.iter().position(|weight| {
            sum += weight;
            sum >= self.top_p * all
        });
        let likely = &weights[..=n_likely.unwrap_or(weights.len() - 1)];
        let mut left = f64::from(rng.uniform()) * likely.iter().sum::<f64>();
        let drawn = likely.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        tokens[drawn.unwrap_or(0)] as u32
    }
}

/// A trained language model that continues a text.
pub struct Generator {
    decoder: Decoder,
    codec: TextCodec,
    choice: Choice,
    rng: Rng,
    /// All tokens so far, of which the last has not been read yet.
    tokens: Vec<u32>,
}

impl Generator {
    /// The model of a run, at one of its checkpoints or the newest.
    pub fn from_run(run: &RunFolder, checkpoint: Option<&Path>) -> Result<Self, SessionError> {
        let spec = run.described_model()?.ok_or_else(|| {
            SessionError::Run("the run's model is Python's: continue texts with the model itself there".to_owned())
        })?;
        let checkpoint = run.choose(checkpoint)?.ok_or_else(|| {
            SessionError::Run(format!("{} has no checkpoint yet; train it for an epoch first", run.path().display()))
        })?;
        let codec = match run.codec()? {
            Some(codec) => codec,
            None => codec_of(&run.job(&[])?)?,
        };
        let values = run.load_model(&checkpoint, &run.network()?.layout())?;
        Self::new(&spec, values, codec)
    }

    /// The model of this name or description, with weights in a file and the tokens of a data set or a tokenizer's file.
    pub fn from_weights(weights: &Path, model: &str, tokens: &str) -> Result<Self, SessionError> {
        let mut job = Job::parse("the arguments", "", &[])?;
        model.clone_into(&mut job.model);
        let path = Path::new(tokens);
        let codec = if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read(path).map_err(SessionError::file("cannot read", path))?;
            TextCodec::tokenizer(path, &text)?
        } else {
            job.data = data_spec(tokens, job.data)?;
            codec_of(&job)?
        };
        let spec = nettorrent_engine::job::model_spec(model, None, Some(codec.n_tokens()))?;
        let values = load_weights(weights, &build_network(model, &spec)?.layout())?;
        Self::new(&spec, values, codec)
    }

    fn new(spec: &ModelSpec, values: Vec<f32>, codec: TextCodec) -> Result<Self, SessionError> {
        let decoder = Decoder::new(spec, values).map_err(|problem| SessionError::Run(problem.to_string()))?;
        if decoder.n_tokens() < codec.n_tokens() {
            let (of_model, of_text) = (decoder.n_tokens(), codec.n_tokens());
            let problem = format!(
                "the model knows {of_model} tokens and the text has {of_text}; give the tokens that it was trained with"
            );
            return Err(SessionError::Run(problem));
        }
        Ok(Self { decoder, codec, choice: Choice::default(), rng: Rng::new(0), tokens: Vec::new() })
    }

    /// Begins a text: what tokens are drawn follows from the seed.
    pub fn begin(&mut self, prompt: &str, choice: Choice, seed: u64) -> Result<(), SessionError> {
        choice.check()?;
        self.tokens = self.codec.encode(prompt)?;
        if self.tokens.is_empty() {
            let start = self.codec.end_of_document().map_or_else(|| self.codec.encode("\n"), |end| Ok(vec![end]));
            self.tokens = start.unwrap_or_else(|_| vec![0]);
        }
        (self.choice, self.rng) = (choice, Rng::stream(seed, "generate", 0));
        self.decoder.restart();
        self.read(self.tokens.len() - 1);
        Ok(())
    }

    /// Reads all but the newest token, the last `n` of those at most.
    fn read(&mut self, n: usize) {
        let end = self.tokens.len() - 1;
        let most = self.decoder.n_left().map_or(n, |left| n.min(left.saturating_sub(1)));
        for &token in &self.tokens[end - most..end] {
            self.decoder.read(token);
        }
    }

    /// The next token.
    pub fn next_token(&mut self) -> u32 {
        if self.decoder.n_left() == Some(0) {
            self.decoder.restart();
            let half = self.decoder.n_left().map_or(0, |left| left / 2);
            self.read(half.min(self.tokens.len() - 1));
        }
        let newest = self.tokens[self.tokens.len() - 1];
        let scores = self.decoder.read(newest);
        let n_tokens = self.codec.n_tokens();
        let token = self.choice.draw(&scores[..n_tokens], &mut self.rng);
        self.tokens.push(token);
        token
    }

    /// Whether a token ends a document.
    pub fn is_end(&self, token: u32) -> bool {
        self.codec.end_of_document() == Some(token)
    }

    /// What tokens say.
    pub fn text(&self, tokens: &[u32]) -> String {
        self.codec.decode(tokens)
    }
}

fn codec_of(job: &Job) -> Result<TextCodec, SessionError> {
    let data = open_data(job, Split::Train)?;
    let codec = data.tokenizer().cloned();
    codec.ok_or_else(|| SessionError::Run("the data are no text, so there is none to continue".to_owned()))
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::rng::Rng;

    use super::Choice;

    #[test]
    fn only_likely_tokens_are_drawn() {
        let scores = [0.0, 3.0, 2.9, -20.0, 1.0];
        let drawn = |choice: Choice| {
            let mut rng = Rng::new(1);
            let mut counts = [0; 5];
            (0..1000).for_each(|_| counts[choice.draw(&scores, &mut rng) as usize] += 1);
            counts
        };
        let all = Choice { temperature: 1.0, top_k: 0, top_p: 1.0 };
        assert_eq!(drawn(Choice { temperature: 0.0, ..all }), [0, 1000, 0, 0, 0]);
        let two = drawn(Choice { top_k: 2, ..all });
        assert!(two[1] > 400 && two[2] > 400 && two[1] + two[2] == 1000, "{two:?}");
        assert_eq!(drawn(Choice { top_p: 0.1, ..all }), [0, 1000, 0, 0, 0]);
        let any = drawn(all);
        assert!(any[0] > 10 && any[4] > 40 && any[3] == 0, "{any:?}");
        assert!(drawn(Choice { temperature: 5.0, ..all })[0] > any[0]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let usual = Choice::default();
        assert!(usual.check().is_ok());
        assert!(Choice { temperature: f64::NAN, ..usual }.check().is_err());
        assert!(Choice { top_p: 0.0, ..usual }.check().is_err());
    }
}
