//! What a trainer had to do besides training, as events and in words.

use nettorrent_engine::checkpoint::Progress;
use nettorrent_engine::learning::Learning;
use nettorrent_engine::trainer::Incident;
use nettorrent_history::{BadSample, Event, LeftOut, Rollback};

/// What to tell people and programs.
pub(crate) fn tell(incident: Incident, learning: &Learning) -> (String, Event) {
    match incident {
        Incident::LeftOut { samples, step } => {
            let sample = |index| BadSample { index, origin: learning.train_origin(index) };
            let left_out = LeftOut { samples: samples.into_iter().map(sample).collect(), step };
            (left_out.to_string(), Event::LeftOut(left_out))
        }
        Incident::WentBack { why, from_step, epoch, step, is_rate_halved, n_rollbacks } => {
            let (why, lr_factor) = (why.to_string(), 0.5_f32.powi(n_rollbacks as i32));
            let rollback = Rollback { why, from_step, epoch, step, is_rate_halved, lr_factor };
            (rollback.to_string(), Event::Rollback(rollback))
        }
    }
}

/// A learning rate that is given anew is used as it is, and samples of other data are not those that were left out.
pub(crate) fn forget_what_is_set_anew(progress: &mut Progress, settings: &[String]) {
    let is_set = |name: &str| settings.iter().any(|setting| setting.starts_with(name));
    if is_set("optimizer") {
        progress.n_rollbacks = 0;
    }
    if is_set("data") {
        progress.left_out.clear();
    }
}
