//! What a borrower and a lender say to each other: fixed records of little-endian numbers over a stream of bytes.
//!
//! `connection` is the borrower's end, in programs; the crate `atoll-lend` has the lender's. A connection begins with a proof in
//! both directions that the other end knows a key, which is never sent: a [`Hello`], a [`Welcome`] with the lender's answer, the
//! borrower's answer, and a [`Reply`]. After that the borrower sends a [`Request`], its entries and its data, and gets a
//! [`Reply`] and its data. The keyed hashes are over all that was said before, so an answer fits no other connection. Nothing is
//! encrypted. Whatever the peer says is checked where it is used: here only its shape.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//!
//! Source: the barrelfish paper, section 6.6.3: memory of another address space is named by a capability in each request, and
//! its owner checks it on arrival.

/// The version of this format; both ends need the same.
pub const VERSION: u32 = 4;
/// Pages, and so entries, of a request at most.
pub const MOST_ENTRIES: usize = 64;
/// Bytes of data of a request or of its reply at most.
pub const MOST_BYTES: u64 = 8 << 20;
/// Bytes of an answer to a challenge.
pub const ANSWER: usize = 32;

const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"atLh");
const WELCOME_MAGIC: u32 = u32::from_le_bytes(*b"atLw");
const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"atLq");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"atLr");

fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = to.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

fn get<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

fn word(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(from, at))
}

fn long(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(from, at))
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It begins a session, and the session ends with it. Its key is made from the secret.
    Control,
    /// It moves pages of a session. Its key is the session's.
    Pages,
}

/// The first record of a borrower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The borrower's version of the format.
    pub version: u32,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The session, for [`Purpose::Pages`].
    pub session: u64,
    /// Random bytes.
    pub challenge: [u8; 32],
}

impl Hello {
    /// Bytes of the record.
    pub const BYTES: usize = 64;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, HELLO_MAGIC.to_le_bytes());
        put(&mut bytes, 4, self.version.to_le_bytes());
        put(&mut bytes, 8, (self.purpose as u32).to_le_bytes());
        put(&mut bytes, 16, self.session.to_le_bytes());
        put(&mut bytes, 32, self.challenge);
        bytes
    }

    /// The record of these bytes; `None` if they are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Hello> {
        let purpose = match word(bytes, 8) {
            0 => Purpose::Control,
            1 => Purpose::Pages,
            _ => return None,
        };
        (word(bytes, 0) == HELLO_MAGIC).then(|| Hello {
            version: word(bytes, 4),
            purpose,
            session: long(bytes, 16),
            challenge: get(bytes, 32),
        })
    }
}

/// The first record of a lender, behind which comes its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The lender's version of the format.
    pub version: u32,
    /// Whether the lender goes on with this borrower.
    pub status: Status,
    /// The session, new for [`Purpose::Control`].
    pub session: u64,
    /// Bytes of every piece of memory that it lends.
    pub piece_bytes: u64,
    /// Random bytes.
    pub challenge: [u8; 32],
}

impl Welcome {
    /// Bytes of the record.
    pub const BYTES: usize = 64;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, WELCOME_MAGIC.to_le_bytes());
        put(&mut bytes, 4, self.version.to_le_bytes());
        put(&mut bytes, 8, (self.status as u32).to_le_bytes());
        put(&mut bytes, 16, self.session.to_le_bytes());
        put(&mut bytes, 24, self.piece_bytes.to_le_bytes());
        put(&mut bytes, 32, self.challenge);
        bytes
    }

    /// The record of these bytes; `None` if they are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Welcome> {
        (word(bytes, 0) == WELCOME_MAGIC).then_some(())?;
        Some(Welcome {
            version: word(bytes, 4),
            status: Status::of(word(bytes, 8))?,
            session: long(bytes, 16),
            piece_bytes: long(bytes, 24),
            challenge: get(bytes, 32),
        })
    }
}

/// Who gives an answer, so that none can be sent back to where it came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The lender.
    Lender,
    /// The borrower.
    Borrower,
    /// Nobody: the hash is the key of the session that this connection begins, and is not sent.
    Session,
}

/// The keyed hash over the beginning of a connection.
pub fn answer(
    key: &[u8; 32],
    side: Side,
    hello: &[u8; Hello::BYTES],
    welcome: &[u8; Welcome::BYTES],
) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&[side as u8]).update(hello).update(welcome);
    hasher.finalize()
}

/// The key of connections that begin a session, from a secret of any length.
pub fn control_key(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("atoll 1 lender and borrower", secret)
}

/// What a borrower asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// The bytes of the entries, in their order.
    Read = 1,
    /// To write the data to the entries, in their order.
    Write = 2,
    /// One more piece of memory. The reply has the handle of a capability to it.
    Borrow = 3,
    /// To take back the pieces of the entries.
    GiveBack = 4,
    /// Whether the lender is there. The reply's `detail` is the number of bytes that it could still lend, and its data a [`Wish`].
    Ping = 5,
    /// What it has lent to whom. The reply has an encoding that only the crate `atoll-lend` knows.
    Report = 6,
    /// To know the borrower by the text of the data.
    Introduce = 7,
    /// To lend at most as many bytes as the data says, a number of 8 bytes. Only for [`Purpose::Control`].
    Resize = 8,
    /// To enter the lender of the data's card among the names that this lender keeps, until the connection ends. The reply's data is
    /// empty, or the card of another lender that has the name. Only for [`Purpose::Control`].
    Register = 9,
    /// The names that this lender keeps. The reply has an encoding that only the crate `atoll-lend` knows.
    Names = 10,
}

/// The head of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is asked for.
    pub verb: Verb,
    /// Number of the request on this connection; its reply has the same.
    pub sequence: u32,
    /// Entries behind the head.
    pub entries: u32,
    /// Bytes of data behind the entries.
    pub bytes: u64,
}

impl Request {
    /// Bytes of the record.
    pub const BYTES: usize = 32;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, REQUEST_MAGIC.to_le_bytes());
        put(&mut bytes, 4, (self.verb as u32).to_le_bytes());
        put(&mut bytes, 8, self.sequence.to_le_bytes());
        put(&mut bytes, 12, self.entries.to_le_bytes());
        put(&mut bytes, 16, self.bytes.to_le_bytes());
        bytes
    }

    /// The record of these bytes; `None` if they are none, or ask for more than a request may.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Request> {
        let verb = match word(bytes, 4) {
            1 => Verb::Read,
            2 => Verb::Write,
            3 => Verb::Borrow,
            4 => Verb::GiveBack,
            5 => Verb::Ping,
            6 => Verb::Report,
            7 => Verb::Introduce,
            8 => Verb::Resize,
            9 => Verb::Register,
            10 => Verb::Names,
            _ => return None,
        };
        let request =
            Request { verb, sequence: word(bytes, 8), entries: word(bytes, 12), bytes: long(bytes, 16) };
        let fits = request.entries as usize <= MOST_ENTRIES && request.bytes <= MOST_BYTES;
        (word(bytes, 0) == REQUEST_MAGIC && fits).then_some(request)
    }
}

/// The name of a capability in its lender's table, as `atoll-channel` gives it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handle {
    /// The lender's node.
    pub node: u32,
    /// The place in its table.
    pub slot: u32,
    /// How many capabilities this place had before.
    pub generation: u32,
    /// A check word that only the table can compute.
    pub check: u64,
}

impl Handle {
    /// Bytes of the record.
    pub const BYTES: usize = 24;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, self.node.to_le_bytes());
        put(&mut bytes, 4, self.slot.to_le_bytes());
        put(&mut bytes, 8, self.generation.to_le_bytes());
        put(&mut bytes, 16, self.check.to_le_bytes());
        bytes
    }

    /// The record of these bytes.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Handle {
        Handle {
            node: word(bytes, 0),
            slot: word(bytes, 4),
            generation: word(bytes, 8),
            check: long(bytes, 16),
        }
    }
}

/// Bytes of lent memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The capability to the piece.
    pub handle: Handle,
    /// The first byte in the piece.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

impl Entry {
    /// Bytes of the record.
    pub const BYTES: usize = 40;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, self.handle.encode());
        put(&mut bytes, 24, self.offset.to_le_bytes());
        put(&mut bytes, 32, self.length.to_le_bytes());
        bytes
    }

    /// The record of these bytes.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Entry {
        let handle = Handle::decode(&get(bytes, 0));
        Entry { handle, offset: long(bytes, 24), length: long(bytes, 32) }
    }
}

/// What a lender wants of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Bytes that the session may keep; `None`: all that it has.
    pub keep_bytes: Option<u64>,
    /// Whether the lender ends as soon as it has everything back.
    pub leaves: bool,
}

impl Wish {
    /// Bytes of the record.
    pub const BYTES: usize = 16;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, self.keep_bytes.unwrap_or(u64::MAX).to_le_bytes());
        put(&mut bytes, 8, u64::from(self.leaves).to_le_bytes());
        bytes
    }

    /// The record of these bytes.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Wish {
        let keep = long(bytes, 0);
        Wish { keep_bytes: (keep != u64::MAX).then_some(keep), leaves: long(bytes, 8) != 0 }
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It was done.
    Done = 0,
    /// The lender has no memory left to lend.
    Full = 1,
    /// The capability was never given out.
    Forged = 2,
    /// The capability was taken back.
    Revoked = 3,
    /// The capability is another session's, or does not allow this.
    NotAllowed = 4,
    /// The bytes do not lie in the piece.
    Range = 5,
    /// The lender does not know the session: it has ended, or the lender is another than the one that began it.
    NoSession = 6,
    /// The lender has another version of this format.
    Version = 7,
    /// The lender could not read the request.
    Nonsense = 8,
    /// The borrower did not prove that it knows the key.
    Unproven = 9,
}

impl Status {
    fn of(number: u32) -> Option<Status> {
        use Status::*;
        [Done, Full, Forged, Revoked, NotAllowed, Range, NoSession, Version, Nonsense, Unproven]
            .into_iter()
            .find(|status| *status as u32 == number)
    }

    /// What a borrower says of it.
    pub fn words(self) -> &'static str {
        match self {
            Status::Done => "it did what was asked",
            Status::Full => "it has no memory left to lend",
            Status::Forged => "it says that it never lent this memory",
            Status::Revoked => "it took the memory back",
            Status::NotAllowed => "it says that this memory is another run's",
            Status::Range => "it says that its memory is smaller",
            Status::NoSession => "it does not know this run: it was restarted, or has given the run up",
            Status::Version => "it is of another version of atoll: install the same on both hosts",
            Status::Nonsense => "it could not read what it was sent",
            Status::Unproven => "it has another secret than this host",
        }
    }
}

/// The head of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// What became of the request.
    pub status: Status,
    /// The request's number.
    pub sequence: u32,
    /// Bytes of data behind the head.
    pub bytes: u64,
    /// What the request's verb says.
    pub detail: u64,
}

impl Reply {
    /// Bytes of the record.
    pub const BYTES: usize = 32;

    /// The record's bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, REPLY_MAGIC.to_le_bytes());
        put(&mut bytes, 4, (self.status as u32).to_le_bytes());
        put(&mut bytes, 8, self.sequence.to_le_bytes());
        put(&mut bytes, 16, self.bytes.to_le_bytes());
        put(&mut bytes, 24, self.detail.to_le_bytes());
        bytes
    }

    /// The record of these bytes; `None` if they are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Reply> {
        let reply = Reply {
            status: Status::of(word(bytes, 4))?,
            sequence: word(bytes, 8),
            bytes: long(bytes, 16),
            detail: long(bytes, 24),
        };
        (word(bytes, 0) == REPLY_MAGIC && reply.bytes <= MOST_BYTES).then_some(reply)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_come_out_as_they_went_in() {
        let hello = Hello { version: 3, purpose: Purpose::Pages, session: 9, challenge: [7; 32] };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let welcome = Welcome {
            version: 1,
            status: Status::Version,
            session: 8,
            piece_bytes: 1 << 22,
            challenge: [1; 32],
        };
        assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
        let request = Request { verb: Verb::Introduce, sequence: 5, entries: 64, bytes: MOST_BYTES };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let handle = Handle { node: 1, slot: 2, generation: 3, check: 4 };
        let entry = Entry { handle, offset: 5, length: 6 };
        assert_eq!(Entry::decode(&entry.encode()), entry);
        for keep_bytes in [None, Some(0), Some(7)] {
            let wish = Wish { keep_bytes, leaves: keep_bytes == Some(0) };
            assert_eq!(Wish::decode(&wish.encode()), wish);
        }
        let reply = Reply { status: Status::Unproven, sequence: 1, bytes: 2, detail: 3 };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }

    #[test]
    fn more_than_a_request_may_ask_for_is_refused() {
        let request = Request { verb: Verb::Read, sequence: 5, entries: 65, bytes: 0 };
        assert_eq!(Request::decode(&request.encode()), None);
        let request = Request { bytes: MOST_BYTES + 1, entries: 1, ..request };
        assert_eq!(Request::decode(&request.encode()), None);
        let reply = Reply { status: Status::Done, sequence: 1, bytes: MOST_BYTES + 1, detail: 0 };
        assert_eq!(Reply::decode(&reply.encode()), None);
    }

    #[test]
    fn an_answer_fits_one_side_of_one_connection() {
        let (hello, welcome) = ([1; 64], [2; 64]);
        let right = answer(&[3; 32], Side::Lender, &hello, &welcome);
        assert_ne!(answer(&[3; 32], Side::Borrower, &hello, &welcome), right);
        assert_ne!(answer(&[4; 32], Side::Lender, &hello, &welcome), right);
        assert_ne!(answer(&[3; 32], Side::Lender, &[2; 64], &welcome), right);
        assert_ne!(answer(&[3; 32], Side::Lender, &hello, &[1; 64]), right);
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_refused(bytes in proptest::collection::vec(any::<u8>(), 64), verb in 0..10_u8) {
            let _ = (Hello::decode(bytes[..].try_into().unwrap()), Welcome::decode(bytes[..].try_into().unwrap()));
            let mut head: [u8; 32] = bytes[..32].try_into().unwrap();
            let _ = (Request::decode(&head), Reply::decode(&head));
            head[..4].copy_from_slice(b"atLq");
            head[4..8].copy_from_slice(&[verb, 0, 0, 0]);
            if let Some(request) = Request::decode(&head) {
                prop_assert!(request.entries as usize <= MOST_ENTRIES && request.bytes <= MOST_BYTES);
            }
        }
    }
}
