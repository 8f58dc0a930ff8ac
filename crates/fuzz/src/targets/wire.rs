//! What comes over a wire before anybody knows who speaks: tickets, frames, hellos; and the densest of all messages.

use std::sync::LazyLock;

use bytes::Bytes;
use nettorrent_net::founder::Founder;
use nettorrent_net::frames::FrameReader;
use nettorrent_net::hello::{Hello, Purpose};
use nettorrent_net::ticket::{Secret, Ticket};
use nettorrent_swarm::sparse::Deltas;
use nettorrent_swarm::wire::{Frame, Kind, MAX_BODY_LEN};

use crate::target::Target;

/// A ticket as somebody types it in.
pub(super) const TICKETS: Target = Target {
    name: "tickets",
    about: "the text of a ticket",
    seeds: || [0, 1, 3, 16].map(|n| ticket(&[7; 6].repeat(n)).to_string().into_bytes()).to_vec(),
    words: &["nt3", "nt2", " ", "\n"],
    read: |input| {
        // A sum guards the text, so those that can be read are few: the same bytes are also taken as addresses.
        let made = ticket(input);
        assert_eq!(made.to_string().parse(), Ok(made), "it is another ticket when it is read");
        let text = String::from_utf8_lossy(input);
        match text.parse::<Ticket>() {
            Err(error) => error.to_string(),
            Ok(ticket) => {
                assert_eq!(ticket.to_string().parse(), Ok(ticket.clone()), "it is another ticket when it is written");
                format!("{} addresses", "i".repeat(ticket.addresses.len()))
            }
        }
    },
    most_bytes: 1 << 16,
    times_input: 16,
    n_quick: 20_000,
};

/// A ticket with these addresses, six bytes each, as far as there is room for them.
fn ticket(bytes: &[u8]) -> Ticket {
    let address = |&[a, b, c, d, high, low]: &[u8; 6]| ([a, b, c, d], u16::from_be_bytes([high, low])).into();
    let addresses = bytes.as_chunks().0.iter().take(MOST_ADDRESSES).map(address).collect();
    FOUNDER.ticket(addresses)
}

/// Whose tickets they are.
static FOUNDER: LazyLock<Founder> = LazyLock::new(|| Founder::from_secret(&Secret::from_bytes([7; 32])));

/// As many as a ticket holds.
const MOST_ADDRESSES: usize = 16;

/// A stream of frames.
pub(super) const FRAMES: Target = Target {
    name: "frames",
    about: "a stream of frames",
    seeds: || {
        let frame = |kind, n| Frame::in_round(kind, 3, 9, 1 << 40, Bytes::from(vec![5; n]));
        let frames =
            [frame(Kind::Hello, 0), frame(Kind::Strategy, 700), frame(Kind::Probe, 1), frame(Kind::Snapshot, 3)];
        let bytes = |frame: &Frame| [&frame.head.to_bytes()[..], &frame.body].concat();
        vec![bytes(&frames[1]), frames.iter().flat_map(bytes).collect()]
    },
    words: &[],
    read: |input| {
        let mut rest = input;
        let mut reader = FrameReader::new(input);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
        runtime.block_on(async {
            let mut kinds = String::new();
            loop {
                match reader.next().await {
                    Err(error) => return format!("{kinds} {error}"),
                    Ok(frame) => {
                        let written = [&frame.head.to_bytes()[..], &frame.body].concat();
                        rest = rest.strip_prefix(&*written).expect("a frame is written as it was read");
                        kinds.extend(char::from_digit(frame.head.kind as u32, 36).filter(|_| kinds.len() < 4));
                    }
                }
            }
        })
    },
    // The reader's own buffer, and the runtime.
    most_bytes: 1 << 20,
    times_input: 8,
    n_quick: 10_000,
};

/// The first words on a link.
pub(super) const HELLO: Target = Target {
    name: "hello",
    about: "the body of a hello",
    seeds: || {
        // One that this program would write has to come from it; this is what stands before and the least that follows.
        let mut body = b"NetTorr\0".to_vec();
        body.extend(nettorrent_net::hello::VERSION.to_le_bytes());
        body.extend([0; 120]);
        vec![body]
    },
    words: &["NetTorr\0"],
    read: |input| {
        let body = Bytes::copy_from_slice(&input[..input.len().min(MAX_BODY_LEN)]);
        match Hello::from_frame(&Frame::new(Kind::Hello, body)) {
            Err(error) => format!("{error:?}"),
            Ok(hello) => {
                assert_eq!(
                    Hello::from_frame(&hello.to_frame()),
                    Ok(hello.clone()),
                    "it is another hello when it is written"
                );
                match hello.purpose {
                    Purpose::Peer { .. } => "a peer",
                    Purpose::Joiner { .. } => "a joiner",
                    Purpose::Observer => "an observer",
                }
                .to_owned()
            }
        }
    },
    most_bytes: 1 << 16,
    times_input: 16,
    n_quick: 20_000,
};

/// Deltas, as `threshold` sends them.
pub(super) const DELTAS: Target = Target {
    name: "deltas",
    about: "which numbers of a vector move, in few bits",
    seeds: || {
        let seed = |n: usize, every: usize| {
            let mut residual: Vec<f32> = (0..n).map(|k| if k % every == 0 { 1.5 } else { 0.1 }).collect();
            let mut deltas = Deltas::new();
            deltas.scan(&mut residual, 1.0);
            deltas.encode().to_vec()
        };
        vec![seed(N_VALUES, 2), seed(N_VALUES, 50), seed(N_VALUES, 5000)]
    },
    words: &[],
    read: |input| {
        let mut deltas = Deltas::new();
        match deltas.decode(input, N_VALUES) {
            Err(error) => error.to_string(),
            Ok(()) => {
                let mut again = Deltas::new();
                again.decode(&deltas.encode(), N_VALUES).expect("what was written can be read");
                assert_eq!(again, deltas, "they are others when they are written");
                deltas.add_to(&mut [0.0; N_VALUES]);
                format!("as many as {} bits say", deltas.len().ilog2_or_zero())
            }
        }
    },
    most_bytes: 1 << 20,
    times_input: 64,
    n_quick: 20_000,
};

/// How long the vector is.
const N_VALUES: usize = 5000;

trait Magnitude {
    fn ilog2_or_zero(self) -> String;
}

impl Magnitude for usize {
    /// In letters, which are told apart.
    fn ilog2_or_zero(self) -> String {
        "i".repeat(self.checked_ilog2().unwrap_or(0) as usize)
    }
}
