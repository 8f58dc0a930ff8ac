//! A peer that trains, alone or with others on other machines, with one terminal of its own.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use clap::Args;
use nettorrent_net::emulated_speed::EmulatedSpeed;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on};
use nettorrent_session::live_log::Topology;
use nettorrent_session::peer_event::Ending;
use nettorrent_session::run_folder::RunFolder;
use nettorrent_session::{Invited, Options, Outcome, Session, Training};
use nettorrent_swarm::check_site_name;
use nettorrent_swarm::link_spec::LinkSpec;

use super::banner::announce;
use super::progress_view::ProgressView;
use crate::interrupt::{self, Interrupt};
use crate::measuring::MeasuringArguments;
use crate::output::say_line;
use crate::progress::{GUESSING, finished_text, stopped_text};
use crate::socket_address::socket_address;
use crate::transport;

/// How a peer is on the network.
#[derive(Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArguments {
    /// Where to listen [default: all addresses, any free port].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    pub listen: Option<SocketAddr>,
    /// The address at which others reach this machine, if it is not one of its own (behind a router that forwards).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    pub address: Option<SocketAddr>,
    /// Reach peers through routers too: straight where that is possible, by this relay where not. Who joins takes the ticket's
    /// relay if this is not given. Run one with `nettorrent relay`.
    #[arg(long, value_name = "URL")]
    pub relay: Option<String>,
    /// Let peers of this swarm on the same local network find this one, and look for them, by mDNS.
    #[arg(long)]
    pub discover: bool,
    /// Where this peer is: peers with the same NAME reach each other fast. Without it, it is with those who answer soon. For the
    /// strategy `two-level`.
    #[arg(long, value_name = "NAME", value_parser = site_name)]
    pub site: Option<String>,
    /// Send as slowly as over this link, for experiments: `100mbit/20ms`.
    #[arg(long, value_name = "RATE/DELAY")]
    pub link: Option<LinkSpec>,
    /// Compute as slowly as a machine that trains so many samples a second, for experiments: `500`, or `500,50@30s` for one that
    /// turns slow after 30 seconds.
    #[arg(long, value_name = "SAMPLES/S")]
    pub speed: Option<EmulatedSpeed>,
    /// A directory for large payloads to peers that have the same one (each gives its own path to it): only names travel.
    #[arg(long, value_name = "PATH")]
    pub shared_dir: Option<PathBuf>,
    /// Do not encrypt. All peers of a swarm have to say so; the secret is still asked for.
    #[arg(long)]
    pub plain: bool,
    /// Print events as lines of JSON instead of a progress display.
    #[arg(long)]
    pub json: bool,
}

impl NetworkArguments {
    /// How to take part; in a swarm that is there already, by its ticket.
    pub(crate) fn options(
        &self,
        wait_for: usize,
        ticket: Option<&Ticket>,
        measuring: &MeasuringArguments,
    ) -> anyhow::Result<Options> {
        Ok(Options {
            wait_for,
            transport: match (&self.relay, ticket) {
                (Some(relay), _) => transport::with_relay(relay)?,
                (None, Some(ticket)) => transport::of_ticket(ticket),
                (None, None) => Options::default().transport,
            },
            listen: self.listen.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into()).into(),
            address: self.address.map(Into::into),
            discover: self.discover,
            encryption: if self.plain { Encryption::Off } else { Encryption::On },
            site: self.site.clone(),
            link: self.link,
            machine: self.speed.clone().into(),
            shared_dir: self.shared_dir.clone(),
            measures: measuring.is_on(),
            tensorboard: measuring.wants_tensorboard(),
            ..Options::default()
        })
    }
}

fn site_name(text: &str) -> Result<String, &'static str> {
    check_site_name(text).map(|()| text.to_owned())
}

/// Tells programs with what others join.
pub(crate) fn print_ticket(ticket: &Ticket, session: &Session) {
    let event = serde_json::json!({ "event": "ticket", "ticket": ticket.to_string(), "address": session.address() });
    say_line(&event.to_string());
}

/// Takes part in a swarm to which this peer was invited.
pub(crate) fn take_part(
    invited: Invited,
    training: Training,
    run: &RunFolder,
    options: Options,
    (measuring, json): (&MeasuringArguments, bool),
) -> anyhow::Result<ExitCode> {
    block_on(Load { n_processes: 1, n_bytes: training.n_bytes() }, async {
        let session = Session::join(invited, Arc::new(training), run.clone(), options).await?;
        measuring.watch(run)?;
        if !json {
            say_line(&format!(
                "Others join through this peer, too; for their ticket: nettorrent ticket {}",
                run.path().display()
            ));
        } else if let Some(ticket) = run.ticket()? {
            print_ticket(&ticket, &session);
        }
        train(session, json).await
    })?
}

/// Trains until all is done, or until Ctrl-C, which leaves the others if there are any.
pub(crate) async fn train(mut session: Session, json: bool) -> anyhow::Result<ExitCode> {
    let leave = session.leave();
    Interrupt::listen_and(move || leave.leave())?;
    let (topology, epochs) = (session.topology(), session.training().job.epochs);
    let view = Rc::new(RefCell::new(ProgressView::new(&(&**session.training()).into(), topology, json)));
    announce(session.training(), session.run_folder().path(), &session.start_state().point(), &view.borrow());
    let (shown, path) = (view.clone(), session.run_folder().path().to_owned());
    session.follow(move |line, fate| shown.borrow_mut().show(line, fate));
    let result = session.run().await;
    let mut view = view.borrow_mut();
    view.finish();
    let outcome = result?;
    match &outcome.ending {
        Ending::Failed(problem) => anyhow::bail!("{problem}"),
        Ending::Left => {
            view.tell(&left_text(&outcome, topology, epochs, &path));
            Ok(ExitCode::from(interrupt::EXIT_CODE))
        }
        Ending::Finished => {
            view.say(&finished_text(outcome.took, outcome.is_kept.then_some(&*path)));
            if outcome.is_guessing {
                view.tell(GUESSING);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What people are told who have left a run of so many epochs.
fn left_text(outcome: &Outcome, topology: Topology, epochs: u64, path: &Path) -> String {
    let &Outcome { epoch, step, was_alone, is_kept, .. } = outcome;
    let (shown, others) = (path.display(), if was_alone { "" } else { "; the others go on" });
    match topology {
        // Who joins and leaves before the others' state has come holds weights that nobody has trained.
        Topology::OneOfMany if step == 0 => format!("Left at step 0{others}. Nothing was learnt yet."),
        Topology::OneOfMany if !is_kept => {
            format!(
                "Left at step {step}{others}. This peer held only a part of the network; the first peer keeps the whole."
            )
        }
        Topology::OneOfMany => format!(
            "Left at step {step}{others}. What was learnt so far is in {shown}; begin again from it with: nettorrent start \
             --resume {shown}"
        ),
        _ if epoch >= epochs => {
            format!("Training is done, its last test is not. Test it with: nettorrent eval {shown}")
        }
        _ => stopped_text(step, is_kept, path),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use nettorrent_session::Outcome;
    use nettorrent_session::live_log::Topology;
    use nettorrent_session::peer_event::Ending;

    use super::left_text;

    #[test]
    fn who_leaves_before_the_first_step_has_learnt_nothing() {
        let left = |step, was_alone| {
            let outcome = Outcome {
                ending: Ending::Left,
                epoch: 0,
                step,
                was_alone,
                is_guessing: false,
                checkpoint: None,
                is_kept: true,
                took: Duration::ZERO,
            };
            left_text(&outcome, Topology::OneOfMany, 10, Path::new("mine"))
        };
        assert_eq!(left(0, true), "Left at step 0. Nothing was learnt yet.");
        assert_eq!(left(0, false), "Left at step 0; the others go on. Nothing was learnt yet.");
        assert!(left(7, false).ends_with("is in mine; begin again from it with: nettorrent start --resume mine"));
    }
}
