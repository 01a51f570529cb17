//! The lenders of a run as the launcher, the program and `atoll top` see them: who they are, and how they do.
//!
//! The launcher writes the settings before the program starts, and keeps the states while it runs (the crate `atoll-lend`); the
//! program's workers count what they move. All of it lies in the control block.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. (`Lenders::add` is the launcher's.)

use std::cell::UnsafeCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Lenders of a run at its start at most.
pub const FIRST_LENDERS: usize = 8;
/// Lenders of a run at most, with those that come back: each counts anew, as nothing of what it had is there any more.
pub const MAX_LENDERS: usize = 16;

/// A short text for messages, cut where it is too long.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Label {
    bytes: [u8; 64],
}

impl Label {
    /// The text, cut to 64 bytes.
    pub fn new(text: &str) -> Label {
        let mut bytes = [0; 64];
        let mut length = text.len().min(bytes.len());
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        for (to, from) in bytes.iter_mut().zip(text.as_bytes().iter().take(length)) {
            *to = *from;
        }
        Label { bytes }
    }

    /// The text.
    pub fn text(&self) -> &str {
        let length = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(self.bytes.len());
        std::str::from_utf8(self.bytes.get(..length).unwrap_or_default()).unwrap_or("?")
    }
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(), out)
    }
}

/// One lender, as the launcher found it. All zeros: none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LenderSettings {
    /// What messages call it: its name and its host.
    pub label: Label,
    ip: [u8; 16],
    scope: u32,
    port: u16,
    is_v6: u16,
    /// The run's session there.
    pub session: u64,
    /// The session's key.
    pub key: [u8; 32],
    /// Bytes of the pieces that it lends.
    pub piece_bytes: u64,
}

impl LenderSettings {
    /// No lender.
    pub const NONE: LenderSettings = LenderSettings {
        label: Label { bytes: [0; 64] },
        ip: [0; 16],
        scope: 0,
        port: 0,
        is_v6: 0,
        session: 0,
        key: [0; 32],
        piece_bytes: 0,
    };

    /// A lender at `address`, where the run has `session` with `key`.
    pub fn new(label: &str, address: SocketAddr, session: u64, key: [u8; 32], piece_bytes: u64) -> Self {
        let (ip, is_v6, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped().octets(), 0, 0),
            SocketAddr::V6(v6) => (v6.ip().octets(), 1, v6.scope_id()),
        };
        Self { label: Label::new(label), ip, scope, port: address.port(), is_v6, session, key, piece_bytes }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        let [.., a, b, c, d] = self.ip;
        if self.is_v6 == 0 {
            return SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), self.port);
        }
        std::net::SocketAddrV6::new(Ipv6Addr::from(self.ip), self.port, 0, self.scope).into()
    }
}

/// The lenders of a run at its start, the nearest first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LendersSettings {
    /// How many there are.
    pub count: u32,
    /// On how many of them each page lies: 1 or 2.
    pub copies: u32,
    /// They themselves.
    pub each: [LenderSettings; FIRST_LENDERS],
}

impl LendersSettings {
    /// No lenders.
    pub const NONE: LendersSettings =
        LendersSettings { count: 0, copies: 1, each: [LenderSettings::NONE; FIRST_LENDERS] };

    /// Those that there are.
    pub fn all(&self) -> &[LenderSettings] {
        self.each.get(..self.count as usize).unwrap_or(&self.each)
    }
}

/// Lenders that came while the run went on. All zeros: none.
#[repr(C)]
pub struct LateLenders {
    count: AtomicU32,
    each: UnsafeCell<[LenderSettings; MAX_LENDERS]>,
}

// SAFETY: a place is written once, by the launcher, before it is counted, and read only after that.
unsafe impl Sync for LateLenders {}

impl fmt::Debug for LateLenders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.all()).finish()
    }
}

impl LateLenders {
    fn count(&self) -> usize {
        // Pairs with the Release in `add`.
        self.count.load(Acquire) as usize
    }

    /// Those that there are.
    pub fn all(&self) -> impl Iterator<Item = &LenderSettings> {
        (0..self.count()).filter_map(|at| self.get(at))
    }

    fn get(&self, at: usize) -> Option<&LenderSettings> {
        // SAFETY: counted, so it is written and stays as it is; other places may be written meanwhile, so no reference to all is made.
        (at < self.count().min(MAX_LENDERS))
            .then(|| unsafe { &*self.each.get().cast::<LenderSettings>().add(at) })
    }
}

/// How a lender does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum LenderState {
    /// It answers.
    Well = 0,
    /// It has not answered for a while: pages go elsewhere where they can.
    Slow = 1,
    /// It is gone, and all that was there with it.
    Lost = 2,
}

/// Steps of [`LenderFigures::latency`] in which a time doubles.
const STEPS: u32 = 4;
/// The first time told apart, as a power of two of nanoseconds.
const FIRST: u32 = 10;
/// How many times are told apart.
pub const TIMES: usize = 96;

/// Bytes of a request by which a link's bandwidth is judged, at least: of a short one most of the time is the round trip.
const MANY_BYTES: u64 = 64 << 10;

/// What is known and counted of one lender.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LenderFigures {
    state: AtomicU32,
    /// Its last measured round trip, in nanoseconds.
    pub round_trip_ns: AtomicU64,
    /// The bytes that it could still lend when it last answered.
    pub free_bytes: AtomicU64,
    /// Bytes that the run has borrowed and not given back.
    pub borrowed_bytes: AtomicU64,
    /// One more than the bytes that the run may keep of these; 0: all.
    keep: AtomicU64,
    /// Whether the lender is about to end.
    pub leaves: AtomicU32,
    /// Bytes that the run has given back while it ran, as the lender wanted them.
    pub returned_bytes: AtomicU64,
    /// Copies of pages that were moved elsewhere for it.
    pub pages_moved: AtomicU64,
    /// Nanoseconds that 1024 bytes take on their way, lately, in requests of many pages and without the round trip; 0: not known.
    pub wire_ns: AtomicU64,
    /// Pages that the run has there now.
    pub pages_held: AtomicU64,
    /// Pages fetched from there.
    pub pages_in: AtomicU64,
    /// Pages sent there.
    pub pages_out: AtomicU64,
    /// Bytes of these.
    pub bytes_in: AtomicU64,
    /// Bytes of these.
    pub bytes_out: AtomicU64,
    /// Reads by the time that they took.
    pub latency: [AtomicU64; TIMES],
}

impl LenderFigures {
    /// How it does.
    pub fn state(&self) -> LenderState {
        match self.state.load(Relaxed) {
            0 => LenderState::Well,
            1 => LenderState::Slow,
            _ => LenderState::Lost,
        }
    }

    /// How much of what it has borrowed the run may keep, if the lender wants some back.
    pub fn keep_bytes(&self) -> Option<u64> {
        self.keep.load(Relaxed).checked_sub(1)
    }

    /// Says how much the run may keep: `None` for all.
    pub fn set_keep_bytes(&self, bytes: Option<u64>) {
        self.keep.store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
    }

    /// Says how it does. A lost lender stays lost. Whether this is news.
    pub fn set_state(&self, state: LenderState) -> bool {
        let change = |old| (old != LenderState::Lost as u32 && old != state as u32).then_some(state as u32);
        self.state.fetch_update(Relaxed, Relaxed, change).is_ok()
    }

    /// Notes that so many bytes moved in this time.
    pub(super) fn note_moved(&self, ns: u64, bytes: u64) {
        if bytes < MANY_BYTES {
            return;
        }
        let without_trip = ns.saturating_sub(self.round_trip_ns.load(Relaxed)).max(ns / 4);
        let (new, old) = (without_trip.saturating_mul(1024) / bytes, self.wire_ns.load(Relaxed));
        // Racing workers lose one of two measurements: no harm.
        self.wire_ns.store(if old == 0 { new } else { old / 8 * 7 + new / 8 }.max(1), Relaxed);
    }

    /// Counts a read that took `ns` nanoseconds.
    pub(super) fn note_read(&self, ns: u64) {
        let octave = ns.max(1).ilog2();
        let place =
            octave.checked_sub(FIRST).map_or(0, |octaves| octaves * STEPS + quarter(ns, octave)) as usize;
        if let Some(count) = self.latency.get(place.min(TIMES - 1)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The time, in nanoseconds, within which a share (0 to 1) of the reads were done, at most a quarter too long; `None` where
    /// there were none.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let total: u64 = self.latency.iter().map(|count| count.load(Relaxed)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut sum = 0;
        let place = self.latency.iter().position(|count| {
            sum += count.load(Relaxed);
            sum >= wanted
        })?;
        let (octave, step) = (place as u32 / STEPS + FIRST, place as u64 % u64::from(STEPS));
        Some((1 << octave) + ((step + 1) << octave) / u64::from(STEPS))
    }
}

/// In which quarter of the way from `octave`'s power of two, at least [`FIRST`]'s, to the next `ns` lies.
fn quarter(ns: u64, octave: u32) -> u32 {
    (ns >> (octave - STEPS.ilog2())) as u32 - STEPS
}

/// What is counted of the file behind the lenders.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct BehindFigures {
    /// Pages fetched from there.
    pub pages_in: AtomicU64,
    /// Pages that went there because no lender had room.
    pub pages_out: AtomicU64,
}

/// The lenders of a run, in memory that all its processes share.
#[derive(Clone, Copy, Debug)]
pub struct Lenders {
    /// The file behind them.
    pub behind: &'static BehindFigures,
    /// Who they are that were there at the start.
    pub settings: &'static LendersSettings,
    /// Who they are that came later.
    pub late: &'static LateLenders,
    /// How they do.
    pub figures: &'static [LenderFigures; MAX_LENDERS],
}

/// Lenders outside of any control block, for measurements and tests.
#[repr(C)]
struct Alone {
    settings: LendersSettings,
    late: LateLenders,
    figures: [LenderFigures; MAX_LENDERS],
    behind: BehindFigures,
}

impl Lenders {
    /// These lenders in shared memory of their own, which stays until the process ends.
    ///
    /// # Errors
    /// The kernel's refusal to map memory.
    pub fn alone(settings: LendersSettings) -> Result<Lenders, super::super::FarError> {
        let memory = super::super::shared::Mapping::new(size_of::<Alone>() as u64, c"atoll lenders", false)?;
        let at = memory.base().cast::<Alone>();
        std::mem::forget(memory);
        // SAFETY: fresh zeroed memory of its size, never unmapped; the atomics are valid when zero, and nobody refers to the settings
        // before they are written.
        unsafe {
            (&raw mut (*at).settings).write(settings);
            Ok(Lenders {
                settings: &(*at).settings,
                late: &(*at).late,
                figures: &(*at).figures,
                behind: &(*at).behind,
            })
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.settings.all().len() + self.late.count()
    }

    /// The lender with this number.
    pub fn get(&self, number: usize) -> Option<(&'static LenderSettings, &'static LenderFigures)> {
        let first = self.settings.all();
        let settings = first.get(number).or_else(|| self.late.get(number.checked_sub(first.len())?));
        settings.zip(self.figures.get(number))
    }

    /// Those that there are, with their figures.
    pub fn all(self) -> impl Iterator<Item = (&'static LenderSettings, &'static LenderFigures)> {
        (0..self.count()).filter_map(move |number| self.get(number))
    }

    /// Adds a lender while the run goes on, with its round trip in nanoseconds; `None` where there are too many already. Only the
    /// launcher may call this.
    pub fn add(
        &self,
        settings: LenderSettings,
        round_trip_ns: u64,
    ) -> Option<(&'static LenderSettings, &'static LenderFigures)> {
        // Several of the launcher's threads may find a lender at once.
        static ADDING: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _adding = ADDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (at, number) = (self.late.count(), self.count());
        let figures = self.figures.get(number)?;
        figures.free_bytes.store(u64::MAX, Relaxed);
        figures.round_trip_ns.store(round_trip_ns, Relaxed);
        // SAFETY: a place of the array, as there are no more of these than of figures, which nobody reads before it is counted.
        unsafe { self.late.each.get().cast::<LenderSettings>().add(at).write(settings) };
        self.late.count.store(at as u32 + 1, Release);
        self.get(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive() {
        for text in ["10.1.2.3:4567", "[::1]:80", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(LenderSettings::new("x", address, 1, [0; 32], 1).address(), address);
        }
    }

    #[test]
    fn labels_are_cut_between_characters() {
        assert_eq!(Label::new("rack1 on b").text(), "rack1 on b");
        let long = "ä".repeat(40);
        assert_eq!(Label::new(&long).text(), "ä".repeat(32));
        assert_eq!(Label::new(&format!("x{long}")).text(), format!("x{}", "ä".repeat(31)));
    }

    #[test]
    fn percentiles_are_near_what_was_noted() {
        let lenders = Lenders::alone(LendersSettings::NONE).unwrap();
        let figures = &lenders.figures[0];
        assert_eq!(figures.percentile(0.5), None);
        for us in 1..=1000 {
            figures.note_read(us * 1000);
        }
        for (share, ns) in [(0.5, 500_000), (0.99, 990_000), (0.01, 10_000)] {
            let told = figures.percentile(share).unwrap();
            assert!(told >= ns && told <= ns * 5 / 4, "{share}: {told}");
        }
        for ns in [0, 1, u64::MAX] {
            figures.note_read(ns);
        }
        assert!(figures.set_state(LenderState::Slow) && !figures.set_state(LenderState::Slow));
        assert!(figures.set_state(LenderState::Lost) && !figures.set_state(LenderState::Well));
        assert_eq!(figures.state(), LenderState::Lost);
    }
}
