//! Puts the threads' words into one order, as if all workers of a team ran at once at the same speed.
//!
//! On few CPUs the workers of a team run one after the other, and their words arrive in that order. So what they do between two
//! barriers of the team is kept until all have passed the second. Then it goes to `output` in the order of the instructions
//! executed since the first. Outside of regions words pass through as they arrive.

mod merge;

use std::collections::VecDeque;
use std::io::Write;

use atoll_record::trace::Event;
use atoll_trace_wire::word::{self, Kind};

use super::output::Output;

/// The most words kept, of 8 bytes each; beyond that, the words that are there are written in the order they have among
/// themselves.
const MOST_KEPT: usize = 16 << 20;

/// The words of a member of the team between two barriers.
#[derive(Debug, Default)]
struct Segment {
    words: Vec<u64>,
    /// The barrier at its end, or the member's end of the region; `None` while it goes on.
    closed: Option<Close>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Close {
    Barrier(u64),
    End,
}

#[derive(Debug, Default)]
struct Member {
    segments: VecDeque<Segment>,
    ended: bool,
}

impl Member {
    fn open_segment(&mut self) -> &mut Segment {
        if self.segments.back().is_none_or(|last| last.closed.is_some()) {
            self.segments.push_back(Segment::default());
        }
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }
}

#[derive(Debug)]
struct Team {
    size: usize,
    /// The members that have begun, by worker.
    members: Vec<Option<Member>>,
    ended: usize,
    kept: usize,
    most_kept: usize,
}

/// The state of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    /// The worker that it was last.
    worker: Option<u16>,
    /// Whether it is a member of the present team.
    member: bool,
}

/// Puts words in order.
#[derive(Debug)]
pub(crate) struct Teams {
    threads: Vec<Thread>,
    team: Option<Team>,
    most_kept: usize,
}

impl Default for Teams {
    fn default() -> Self {
        Self { threads: Vec::new(), team: None, most_kept: MOST_KEPT }
    }
}

impl Teams {
    /// Takes a thread's block of words.
    pub(crate) fn block<W: Write>(&mut self, thread: u32, words: &[u64], out: &mut Output<W>) {
        let mut at = 0;
        while let Some(&first) = words.get(at) {
            let more = Kind::of(first).map_or(0, |kind| kind.more(first));
            let end = (at + 1 + more).min(words.len());
            self.word(thread, &words[at..end], out);
            at = end;
        }
    }

    /// Ends the trace: no more words come.
    pub(crate) fn end<W: Write>(&mut self, out: &mut Output<W>) {
        self.close_team(out);
    }

    /// Takes one word and those that belong to it.
    fn word<W: Write>(&mut self, thread: u32, words: &[u64], out: &mut Output<W>) {
        let (first, number) = (words[0], words.get(1).copied().unwrap_or(0));
        match Kind::of(first) {
            Some(Kind::Seen) => out.seen += word::amount(first),
            Some(Kind::Module) => {
                let bytes: Vec<u8> = words[1..].iter().skip(1).flat_map(|w| w.to_le_bytes()).collect();
                let path = &bytes[..bytes.len().min(word::amount(first) as usize)];
                let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path);
                out.names.loaded(number, path.into());
            }
            Some(Kind::Begin) => {
                self.begin(thread, word::worker(first), word::team(first) as usize, number, out);
                self.keep(thread, words, out);
            }
            Some(Kind::Barrier) if self.is_member(thread) => {
                self.close_segment(thread, Close::Barrier(number));
                self.tell_complete(out);
            }
            Some(Kind::End) if self.is_member(thread) => {
                self.keep(thread, words, out);
                self.close_segment(thread, Close::End);
                self.tell_complete(out);
                if self.team.as_ref().is_some_and(|team| team.ended == team.size) {
                    self.close_team(out);
                }
            }
            Some(_) if self.is_member(thread) => self.keep(thread, words, out),
            Some(_) => {
                let worker = self.worker(thread);
                merge::tell(worker, words, out);
            }
            None => {}
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = (thread as usize).min(usize::from(u16::MAX));
        if self.threads.len() <= index {
            self.threads.resize(index + 1, Thread::default());
        }
        &mut self.threads[index]
    }

    /// Returns the worker of a thread's words: the one it was in its last region, else its own number.
    fn worker(&mut self, thread: u32) -> u16 {
        let own = thread.min(u32::from(u16::MAX)) as u16;
        self.thread(thread).worker.unwrap_or(own)
    }

    fn is_member(&mut self, thread: u32) -> bool {
        self.team.is_some() && self.thread(thread).member
    }

    fn begin<W: Write>(&mut self, thread: u32, worker: u16, size: usize, name: u64, out: &mut Output<W>) {
        // A second team at the same time (of another pthread) ends the order of the first one.
        let fits = |team: &Team| {
            team.size == size && team.members.get(usize::from(worker)).is_none_or(Option::is_none)
        };
        if self.team.as_ref().is_some_and(|team| !fits(team)) {
            self.close_team(out);
        }
        if self.team.is_none() {
            out.region_begins(name);
            out.mark_ahead(name);
        }
        let most_kept = self.most_kept;
        let team =
            self.team.get_or_insert_with(|| Team { size, members: Vec::new(), ended: 0, kept: 0, most_kept });
        let index = usize::from(worker);
        if team.members.len() <= index {
            team.members.resize_with(index + 1, || None);
        }
        team.members[index] = Some(Member::default());
        *self.thread(thread) = Thread { worker: Some(worker), member: true };
    }

    fn member(&mut self, thread: u32) -> Option<&mut Member> {
        let worker = usize::from(self.worker(thread));
        self.team.as_mut()?.members.get_mut(worker)?.as_mut()
    }

    fn keep<W: Write>(&mut self, thread: u32, words: &[u64], out: &mut Output<W>) {
        let Some(member) = self.member(thread) else { return };
        member.open_segment().words.extend_from_slice(words);
        if let Some(team) = &mut self.team {
            team.kept += words.len();
            if team.kept > team.most_kept {
                team.tell_kept(out);
            }
        }
    }

    fn close_segment(&mut self, thread: u32, close: Close) {
        let Some(member) = self.member(thread) else { return };
        member.open_segment().closed = Some(close);
        let ends = close == Close::End && !std::mem::replace(&mut member.ended, true);
        if let Some(team) = &mut self.team {
            team.ended += usize::from(ends);
        }
    }

    /// Writes all stretches between barriers that every member has completed.
    fn tell_complete<W: Write>(&mut self, out: &mut Output<W>) {
        let Some(team) = &mut self.team else { return };
        while team.is_complete() {
            team.tell_first(out);
        }
    }

    fn close_team<W: Write>(&mut self, out: &mut Output<W>) {
        if let Some(mut team) = self.team.take() {
            while team.members.iter().flatten().any(|member| !member.segments.is_empty()) {
                team.tell_first(out);
            }
            self.threads.iter_mut().for_each(|thread| thread.member = false);
            out.region_ends();
        }
    }
}

impl Team {
    /// Whether every member has closed its first segment.
    fn is_complete(&self) -> bool {
        let closed =
            |member: &&Member| member.segments.front().is_some_and(|segment| segment.closed.is_some());
        self.members.iter().flatten().filter(closed).count() == self.size
    }

    /// Writes every member's first segment, and forgets it.
    fn tell_first<W: Write>(&mut self, out: &mut Output<W>) {
        let mut segments = Vec::new();
        for (worker, member) in self.members.iter_mut().enumerate() {
            if let Some(segment) = member.as_mut().and_then(|member| member.segments.pop_front()) {
                self.kept = self.kept.saturating_sub(segment.words.len());
                segments.push((worker as u16, segment));
            }
        }
        if let Some((0, Segment { closed: Some(Close::Barrier(name)), .. })) = segments.first() {
            out.mark_ahead(*name);
        }
        merge::together(segments.iter().map(|(worker, segment)| (*worker, &segment.words[..])), out);
        for (worker, segment) in segments {
            if let Some(Close::Barrier(name)) = segment.closed {
                out.mark(worker, &Event::Barrier { worker, name });
            }
        }
    }

    /// Writes the kept words of the first segments; these stay, empty.
    fn tell_kept<W: Write>(&mut self, out: &mut Output<W>) {
        let mut words = Vec::new();
        for (worker, member) in self.members.iter_mut().enumerate() {
            if let Some(segment) = member.as_mut().and_then(|member| member.segments.front_mut()) {
                words.push((worker as u16, std::mem::take(&mut segment.words)));
            }
        }
        self.kept -= words.iter().map(|(_, words)| words.len()).sum::<usize>().min(self.kept);
        // The words kept now are stretches behind barriers that not all have passed: those must wait.
        self.most_kept = self.most_kept.max(2 * self.kept);
        merge::together(words.iter().map(|(worker, words)| (*worker, &words[..])), out);
    }
}

#[cfg(test)]
mod tests;
