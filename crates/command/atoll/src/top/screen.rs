//! The live view.

use std::io;
use std::time::{Duration, Instant};

use atoll_record::Figures;
use atoll_record::figures::{Counters, Lender, Node};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::attach::{self, Attached};
use crate::run::clock::Clock;
use crate::run::shown::shown;
use crate::run::summary::{bytes, count};

const PERIOD: Duration = Duration::from_secs(1);

/// A run and its counters at the last two looks.
struct View {
    attached: Attached,
    now: Figures,
    before: Figures,
}

struct State {
    pid: Option<i32>,
    clock: Clock,
    views: Vec<View>,
    chosen: usize,
    looked: Instant,
}

/// Shows the view until the user quits.
pub(super) fn show(pid: Option<i32>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let clock = Clock::start();
    let mut state = State { pid, clock, views: Vec::new(), chosen: 0, looked: Instant::now() };
    let result = state.until_quit(&mut terminal);
    ratatui::restore();
    result
}

impl State {
    fn until_quit(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        self.look();
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let left = PERIOD.saturating_sub(self.looked.elapsed());
            if event::poll(left)? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if key.modifiers == KeyModifiers::CONTROL => return Ok(()),
                        KeyCode::Tab | KeyCode::Down => self.chosen += 1,
                        KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
                        _ => {}
                    },
                    _ => {}
                }
            }
            if self.looked.elapsed() >= PERIOD {
                self.look();
            }
        }
    }

    /// Reads the counters; adds runs that came and removes those that ended.
    fn look(&mut self) {
        let rate = self.clock.rate();
        self.looked = Instant::now();
        self.views.retain(|view| view.attached.is_running());
        for view in &mut self.views {
            view.before = std::mem::replace(&mut view.now, view.attached.figures(rate));
        }
        for attached in attach::find(self.pid).running {
            if !self.views.iter().any(|v| v.attached.launcher == attached.launcher) {
                let now = attached.figures(rate);
                self.views.push(View { attached, before: now.clone(), now });
            }
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if self.views.is_empty() {
            let text = "no program of `atoll run` is running; q quits";
            frame.render_widget(Paragraph::new(text), frame.area());
            return;
        }
        self.chosen %= self.views.len();
        let view = &self.views[self.chosen];
        let f = &view.now;
        // These are the tables of nodes and of lenders with their heads, where there are any.
        let nodes = if f.nodes.is_empty() { 0 } else { f.nodes.len() as u16 + 1 };
        let lenders = if f.lenders.is_empty() { 0 } else { f.lenders.len() as u16 + 1 };
        let [head, gauge, table, by_node, by_lender, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(nodes),
            Constraint::Length(lenders),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let s = &f.settings;
        let title = format!(
            "{} (process {})  {:.0} s  {} pages, {}, far {}, {} page tables",
            f.program,
            f.pid.unwrap_or(0),
            f.wall_seconds,
            bytes(s.page_bytes),
            s.policy,
            s.far,
            s.page_tables
        );
        let m = &f.memory;
        let memory = format!(
            "footprint {}  pinned {}  tables {}  far {} held in {}",
            bytes(m.footprint_bytes),
            bytes(m.pinned_bytes),
            bytes(m.table_bytes),
            bytes(m.far_bytes),
            bytes(m.far_stored_bytes)
        );
        frame.render_widget(Paragraph::new(vec![Line::styled(title, bold), Line::raw(memory)]), head);
        frame.render_widget(near_gauge(f), gauge);
        frame.render_widget(rates(view), table);
        frame.render_widget(node_rates(view), by_node);
        frame.render_widget(lender_rates(view), by_lender);
        let keys = match self.views.len() {
            1 => "q quits".to_owned(),
            n => format!("run {} of {n}: Tab shows the next; q quits", self.chosen + 1),
        };
        frame.render_widget(Paragraph::new(keys), foot);
    }
}

fn near_gauge(f: &Figures) -> Gauge<'static> {
    let resident = f.memory.resident_bytes;
    let (ratio, label) = match f.settings.near_bytes {
        Some(near) => {
            let ratio = resident as f64 / (near.max(1)) as f64;
            (ratio, format!("resident {} of {}", bytes(resident), bytes(near)))
        }
        None => {
            let ratio = resident as f64 / f.memory.footprint_bytes.max(1) as f64;
            (ratio, format!("resident {} (no near limit)", bytes(resident)))
        }
    };
    Gauge::default().ratio(ratio.clamp(0.0, 1.0)).label(label)
}

const HEADS: [&str; 12] = [
    "worker",
    "minor/s",
    "major/s",
    "first/s",
    "write/s",
    "evict/s",
    "in/s",
    "out/s",
    "inval/s",
    "waits/s",
    "% in faults",
    "regions",
];

fn rates(view: &View) -> Table<'static> {
    let seconds = (view.now.wall_seconds - view.before.wall_seconds).max(0.01);
    let mut rows: Vec<Row<'static>> = Vec::new();
    for worker in shown(&view.now.workers).workers {
        let before = view.before.workers.iter().find(|w| w.index == worker.index);
        let before = before.map_or(Counters::default(), |w| w.counters);
        rows.push(Row::new(cells(worker.index.to_string(), &worker.counters, &before, seconds, 1)));
    }
    let workers = view.now.workers.len().max(1);
    let total = cells("total".to_owned(), &view.now.total, &view.before.total, seconds, workers);
    rows.push(Row::new(total).style(Style::new().add_modifier(Modifier::BOLD)));
    let heads = Row::new(HEADS).style(Style::new().add_modifier(Modifier::REVERSED));
    Table::new(rows, HEADS.map(|h| Constraint::Length(h.len().max(9) as u16))).header(heads)
}

const NODE_HEADS: [&str; 9] = [
    "node",
    "reads/s",
    "writes/s",
    "% waited",
    "sent/s",
    "inval/s",
    "% at barriers",
    "messages/s",
    "bytes/s",
];

fn node_rates(view: &View) -> Table<'static> {
    let seconds = (view.now.wall_seconds - view.before.wall_seconds).max(0.01);
    let rows = view.now.nodes.iter().enumerate().map(|(number, node)| {
        let before = view.before.nodes.get(number).copied().unwrap_or_default();
        Row::new(node_cells(number, node, &before, seconds))
    });
    let heads = Row::new(NODE_HEADS).style(Style::new().add_modifier(Modifier::REVERSED));
    Table::new(rows, NODE_HEADS.map(|h| Constraint::Length(h.len().max(9) as u16))).header(heads)
}

fn node_cells(number: usize, now: &Node, before: &Node, seconds: f64) -> Vec<String> {
    let rate = |of: fn(&Node) -> u64| (of(now).saturating_sub(of(before)) as f64 / seconds) as u64;
    let share = |of: fn(&Node) -> f64| format!("{:.1}", 100.0 * (of(now) - of(before)).max(0.0) / seconds);
    vec![
        number.to_string(),
        count(rate(|n| n.read_faults)),
        count(rate(|n| n.write_faults)),
        share(|n| n.fault_seconds),
        count(rate(|n| n.pages_sent)),
        count(rate(|n| n.single_invalidations + n.batched_invalidations)),
        share(|n| n.barrier_seconds),
        count(rate(|n| n.messages)),
        bytes(rate(|n| n.message_bytes)),
    ]
}

fn cells(name: String, now: &Counters, before: &Counters, seconds: f64, workers: usize) -> Vec<String> {
    let rate = now.combine(before, |now, before| (now - before).max(0.0) / seconds);
    vec![
        name,
        count(rate.minor_faults),
        count(rate.major_faults),
        count(rate.first_faults),
        count(rate.write_faults),
        count(rate.evictions_clean + rate.evictions_dirty),
        bytes(rate.bytes_in),
        bytes(rate.bytes_out),
        count(rate.remote_tlb_invalidations),
        count(rate.waits),
        format!("{:.1}", 100.0 * rate.fault_seconds / workers as f64),
        count(now.regions),
    ]
}

const LENDER_HEADS: [&str; 8] =
    ["lender", "borrowed", "pages in/s", "pages out/s", "in/s", "out/s", "read 50% us", "read 99% us"];

fn lender_rates(view: &View) -> Table<'static> {
    let seconds = (view.now.wall_seconds - view.before.wall_seconds).max(0.01);
    let rows = view.now.lenders.iter().enumerate().map(|(number, lender)| {
        // A lender keeps its place in the list, and those that come later are behind it.
        let before = view.before.lenders.get(number).cloned().unwrap_or_default();
        Row::new(lender_cells(lender, &before, seconds))
    });
    let widths = [Constraint::Fill(2)].into_iter().chain([Constraint::Fill(1); LENDER_HEADS.len() - 1]);
    let heads = Row::new(LENDER_HEADS).style(Style::new().add_modifier(Modifier::REVERSED));
    Table::new(rows, widths).header(heads)
}

/// Returns a lender's row: rates by second, and times of all of its reads.
fn lender_cells(now: &Lender, before: &Lender, seconds: f64) -> [String; LENDER_HEADS.len()] {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
    let time = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.0}"));
    let state = match now {
        Lender { lost: true, .. } => " (lost)",
        Lender { left: true, .. } => " (left)",
        _ => "",
    };
    [
        format!("{}{state}", now.name),
        bytes(now.borrowed_bytes),
        count(rate(now.pages_in, before.pages_in)),
        count(rate(now.pages_out, before.pages_out)),
        bytes(rate(now.bytes_in, before.bytes_in)),
        bytes(rate(now.bytes_out, before.bytes_out)),
        time(now.read_median_us),
        time(now.read_99_us),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_second() {
        let counters =
            |n| Counters { major_faults: n, fault_seconds: n as f64 / 100.0, ..Counters::default() };
        let cells = cells("0".into(), &counters(50), &counters(10), 2.0, 1);
        assert_eq!((cells[2].as_str(), cells[10].as_str()), ("20", "20.0"));
    }

    #[test]
    fn lenders_have_rates_and_times() {
        let lender = |n| Lender {
            name: "rack1 on b".to_owned(),
            borrowed_bytes: 4 << 20,
            pages_in: n,
            bytes_out: n << 20,
            read_median_us: Some(13.2),
            left: n > 20,
            ..Lender::default()
        };
        let cells = lender_cells(&lender(50), &lender(10), 2.0);
        assert_eq!(cells, ["rack1 on b (left)", "4M", "20", "0", "0", "20M", "13", "-"]);
    }

    #[test]
    fn nodes_have_rates_too() {
        let node = |n| Node { pages_sent: n, barrier_seconds: n as f64 / 100.0, ..Node::default() };
        let cells = node_cells(1, &node(50), &node(10), 2.0);
        assert_eq!((cells[0].as_str(), cells[4].as_str(), cells[6].as_str()), ("1", "20", "20.0"));
    }
}
