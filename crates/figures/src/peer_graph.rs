//! Peers on a circle: who sends how much to whom, and who waits for whom.

use std::f64::consts::TAU;

use crate::canvas::{Align, Canvas, LINE, Lettering, Pen, Place, TEXT, WIDTH, draw};
use crate::frame::{draw_title, title_height, title_lines};
use crate::legend::{Key, Legend, arrow};
use crate::number::Unit;
use crate::palette::{ALERT, Colour, INK, MOST_NAMED, MUTED, PAPER, look};
use crate::text::clipped;

/// Peers and what passes between them.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerGraph {
    /// What the figure shows.
    pub title: String,
    /// What a peer may be doing; a peer names its state by its place here.
    pub states: Vec<String>,
    /// The peers, clockwise from above.
    pub peers: Vec<PeerNode>,
    /// What passes between them.
    pub links: Vec<PeerLink>,
    /// What the links' traffic counts.
    pub unit: Unit,
    /// Who waits for whom, by their places in `peers`.
    pub waits: Vec<(usize, usize)>,
}

/// A peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerNode {
    /// Its name.
    pub label: String,
    /// Something about it, in few words.
    pub detail: String,
    /// Which of the states it is in.
    pub state: usize,
}

/// A link between two peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerLink {
    /// One end, by its place in `peers`.
    pub from: usize,
    /// The other.
    pub to: usize,
    /// How much passes.
    pub traffic: f64,
}

/// More peers than this have no names.
const MOST_LABELLED: usize = 24;
/// More peers than this are left out.
const MOST_PEERS: usize = 1000;
/// Only so many links are drawn, those with the most traffic.
const MOST_LINKS: usize = 600;
const WIDEST: f64 = 9.0;

impl PeerGraph {
    /// The figure as SVG.
    pub fn svg(&self) -> String {
        let title = title_lines(&self.title);
        let top = title_height(&title);
        let ring = Ring::new(self.peers.len().min(MOST_PEERS), top);
        let legend = self.legend();
        let legend_top = top + ring.height + 8.0;
        let description = format!("{}: {} peers, {} waits", self.title, self.peers.len(), self.waits.len());
        draw(&description, legend_top + legend.height() + 6.0, |canvas| {
            draw_title(canvas, &title);
            self.draw_links(canvas, &ring);
            for (from, to) in self.waits.iter().take(MOST_LINKS) {
                if from != to && *from < ring.n && *to < ring.n {
                    ring.draw_wait(canvas, *from, *to);
                }
            }
            for (index, peer) in self.peers.iter().take(ring.n).enumerate() {
                let colour =
                    if peer.state < self.states.len().min(MOST_NAMED) { look(peer.state).colour } else { MUTED };
                ring.draw_peer(canvas, index, peer, colour);
            }
            if self.peers.is_empty() {
                canvas.text("no peers", ring.centre, Lettering { align: Align::Middle, ..Lettering::plain(MUTED) });
            }
            legend.draw(canvas, legend_top);
        })
    }

    /// The links that have something to show, those with the most traffic last and so above.
    fn shown_links(&self) -> Vec<PeerLink> {
        let n = self.peers.len().min(MOST_PEERS);
        let is_whole = |link: &&PeerLink| {
            link.from != link.to && link.from < n && link.to < n && link.traffic.is_finite() && link.traffic > 0.0
        };
        let mut links: Vec<PeerLink> = self.links.iter().filter(is_whole).copied().collect();
        links.sort_by(|a, b| a.traffic.total_cmp(&b.traffic));
        links.split_off(links.len().saturating_sub(MOST_LINKS))
    }

    fn draw_links(&self, canvas: &mut Canvas, ring: &Ring) {
        let links = self.shown_links();
        let most = links.last().map_or(1.0, |link| link.traffic);
        for link in links {
            let share = link.traffic / most;
            let pen = Pen {
                colour: look(0).colour,
                width: (WIDEST * share * ring.scale).max(0.7),
                dash: None,
                opacity: 0.25 + 0.5 * share,
            };
            canvas.line(ring.place(link.from), ring.place(link.to), pen);
        }
    }

    fn legend(&self) -> Legend {
        let states = self.states.iter().take(MOST_NAMED).enumerate();
        let mut entries: Vec<(Key, String)> =
            states.map(|(index, name)| (Key::Disc(look(index).colour), name.clone())).collect();
        let links = self.shown_links();
        if let Some(most) = links.last() {
            let pen = |width, opacity| Pen { colour: look(0).colour, width, dash: None, opacity };
            entries.push((Key::Line(pen(WIDEST, 0.75)), self.unit.format(most.traffic)));
            entries.push((Key::Line(pen(WIDEST / 4.0, 0.38)), self.unit.format(most.traffic / 4.0)));
        }
        entries.push((Key::Arrow(ALERT), "waits for".to_owned()));
        if self.links.len() > MOST_LINKS {
            entries.push((Key::Disc(PAPER), format!("only the {MOST_LINKS} busiest links are shown")));
        }
        if self.peers.len() > MOST_PEERS {
            let n_more = self.peers.len() - MOST_PEERS;
            entries.push((Key::Disc(PAPER), format!("{n_more} more peers are not shown")));
        }
        Legend::new(entries)
    }
}

/// Where the peers lie.
struct Ring {
    n: usize,
    centre: Place,
    across: f64,
    down: f64,
    height: f64,
    /// How large a peer is, and how much thinner links are where there are many.
    node: f64,
    scale: f64,
}

impl Ring {
    fn new(n: usize, top: f64) -> Self {
        let height = if n <= 3 { 280.0 } else { 420.0 };
        let node = if n <= 6 { 20.0 } else { (300.0 / n as f64).clamp(2.0, 15.0) };
        let scale = if n <= 12 { 1.0 } else { (12.0 / n as f64).max(0.12) };
        let centre = (WIDTH / 2.0, top + height / 2.0);
        // A single peer lies in the middle.
        let (across, down) = match n {
            0 | 1 => (0.0, 0.0),
            // Names need room at all sides.
            n if n <= MOST_LABELLED => (WIDTH / 2.0 - 100.0, height / 2.0 - node - 2.2 * LINE),
            _ => (WIDTH / 2.0 - 30.0, height / 2.0 - 12.0),
        };
        Self { n, centre, across, down, height, node, scale }
    }

    fn direction(&self, index: usize) -> Place {
        let angle = TAU * index as f64 / self.n.max(1) as f64;
        (angle.sin(), -angle.cos())
    }

    fn place(&self, index: usize) -> Place {
        let (x, y) = self.direction(index);
        (self.centre.0 + x * self.across, self.centre.1 + y * self.down)
    }

    fn draw_wait(&self, canvas: &mut Canvas, from: usize, to: usize) {
        let (from, to) = (self.place(from), self.place(to));
        let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
        let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
        // Beside the link, so that both can be seen, and from rim to rim.
        let side = WIDEST * self.scale;
        let shift = |(x, y): Place, along: f64| (x + dx * along - dy * side, y + dy * along + dx * side);
        arrow(canvas, shift(from, self.node), shift(to, -self.node - 2.0), ALERT);
    }

    fn draw_peer(&self, canvas: &mut Canvas, index: usize, peer: &PeerNode, colour: Colour) {
        let at = self.place(index);
        canvas.disc(at, self.node + 2.0, PAPER);
        canvas.disc(at, self.node, colour);
        if self.n > MOST_LABELLED {
            return;
        }
        let (x, y) = self.direction(index);
        let align = match x {
            x if x > 0.2 => Align::Start,
            x if x < -0.2 => Align::End,
            _ => Align::Middle,
        };
        let reach = self.node + 7.0;
        // Above and below, text needs more room than at the sides, since it is written across.
        let (label_x, label_y) = if align == Align::Middle {
            (at.0, at.1 + if y > 0.0 { reach + 6.0 } else { -reach - LINE * 1.2 })
        } else {
            (at.0 + x.signum() * reach, at.1 - LINE * 0.4)
        };
        let room = if align == Align::End { label_x } else { WIDTH - label_x };
        let lettering = Lettering { align, ..Lettering::plain(INK) };
        canvas.text(&clipped(&peer.label, TEXT, room), (label_x, label_y), lettering);
        if !peer.detail.is_empty() {
            let detail = clipped(&peer.detail, TEXT - 1.0, room);
            let lettering = Lettering { size: TEXT - 1.0, colour: MUTED, ..lettering };
            canvas.text(&detail, (label_x, label_y + LINE * 0.85), lettering);
        }
    }
}
