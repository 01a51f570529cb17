//! Lenders that lie: what they send is checked, and no page comes back with other bytes than it had.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use atoll_memory::far::hosts::lenders::LenderState;
use atoll_memory::far::hosts::lenders::{LenderSettings, Lenders, LendersSettings};
use atoll_memory::far::hosts::wire::{
    self, ANSWER, Entry, Handle, Hello, Reply, Request, Side, Status, VERSION, Verb, Welcome,
};

use crate::pages::Pages;

const KEY: [u8; 32] = [5; 32];

/// In which way a lender lies.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lie {
    Nothing,
    OtherBytes,
    Zeros,
    OtherSequence,
    MoreBytes,
    FewerBytes,
    Garbage,
    HangUp,
    WrongProof,
}

/// A lender that proves itself and has as many zeros as one wants, or what was written last to each place.
fn lender(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut memory = vec![0; 1 << 20];
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, lie, &mut memory);
        }
    });
    address
}

fn serve(mut stream: TcpStream, lie: Lie, memory: &mut [u8]) -> std::io::Result<()> {
    let mut hello = [0; Hello::BYTES];
    stream.read_exact(&mut hello)?;
    let session = Hello::decode(&hello).unwrap().session;
    let welcome =
        Welcome { version: VERSION, status: Status::Done, session, piece_bytes: 1 << 20, challenge: [1; 32] };
    let welcome = welcome.encode();
    stream.write_all(&welcome)?;
    let key = if lie == Lie::WrongProof { [6; 32] } else { KEY };
    stream.write_all(wire::answer(&key, Side::Lender, &hello, &welcome).as_bytes())?;
    stream.read_exact(&mut [0; ANSWER])?;
    let say = |sequence, bytes| Reply { status: Status::Done, sequence, bytes, detail: 1 << 30 }.encode();
    stream.write_all(&say(0, 0))?;
    loop {
        let mut head = [0; Request::BYTES];
        stream.read_exact(&mut head)?;
        let request = Request::decode(&head).unwrap();
        let mut entries = Vec::new();
        for _ in 0..request.entries {
            let mut entry = [0; Entry::BYTES];
            stream.read_exact(&mut entry)?;
            entries.push(Entry::decode(&entry));
        }
        let range = |entry: &Entry| entry.offset as usize..(entry.offset + entry.length) as usize;
        match request.verb {
            Verb::Borrow => {
                stream.write_all(&say(request.sequence, 24))?;
                stream.write_all(&Handle::default().encode())?;
            }
            Verb::Write => {
                for entry in &entries {
                    stream.read_exact(&mut memory[range(entry)])?;
                }
                stream.write_all(&say(request.sequence, 0))?;
            }
            _ => {
                let mut data: Vec<u8> =
                    entries.iter().flat_map(|entry| memory[range(entry)].to_vec()).collect();
                let bytes = data.len() as u64;
                match lie {
                    Lie::OtherBytes => data[70] ^= 1,
                    Lie::Zeros => data.fill(0),
                    Lie::HangUp => return Ok(()),
                    _ => {}
                }
                let head = match lie {
                    Lie::OtherSequence => say(request.sequence + 1, bytes),
                    Lie::MoreBytes => say(request.sequence, bytes + 4096),
                    Lie::FewerBytes => say(request.sequence, bytes - 1),
                    Lie::Garbage => [0x5a; Reply::BYTES],
                    _ => say(request.sequence, bytes),
                };
                stream.write_all(&head)?;
                stream.write_all(&data)?;
            }
        }
    }
}

fn pages(lie: Lie) -> Pages {
    let mut settings = LendersSettings { count: 1, ..LendersSettings::NONE };
    settings.each[0] = LenderSettings::new("liar on b", lender(lie), 9, KEY, 1 << 20);
    let lenders = Lenders::alone(settings).unwrap();
    lenders.figures[0].free_bytes.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    Pages::over(lenders)
}

#[test]
fn a_lender_that_lies_is_found_out() {
    for (lie, words) in [
        (Lie::OtherBytes, "other bytes than it was sent"),
        (Lie::Zeros, "other bytes than it was sent"),
        (Lie::OtherSequence, "bytes that are no answer"),
        (Lie::MoreBytes, "bytes that are no answer"),
        (Lie::FewerBytes, "bytes that are no answer"),
        (Lie::Garbage, "bytes that are no answer"),
        (Lie::HangUp, "it closed the connection"),
    ] {
        // Pages as they are, and packed ones.
        for salt in [1, 2] {
            let mut pages = pages(lie);
            pages.slow_links();
            pages.store(1..50, salt).unwrap();
            let text = pages.load(1..50, salt).unwrap_err().to_string();
            assert!(text.contains("liar on b") && text.contains(words), "{lie:?}: {text}");
        }
    }
    let mut honest = pages(Lie::Nothing);
    honest.store(1..50, 1).unwrap();
    assert!(honest.load(1..50, 1).unwrap());
}

#[test]
fn a_lender_that_does_not_know_the_key_gets_no_page() {
    let mut pages = pages(Lie::WrongProof);
    // They go to the file, and the lender counts as lost.
    pages.store(1..5, 1).unwrap();
    assert_eq!((pages.held(0), pages.behind().1), (0, 4));
    assert_eq!(pages.lenders.figures[0].state(), LenderState::Lost);
    assert!(pages.load(1..5, 1).unwrap());
}
