//! Tests of launchers with agents that send invalid messages, and of agents with launchers that do.
//!
//! The messages are written here byte by byte, as they go over the pipes: a change to them needs a new version.

use std::process::{Command, Stdio};

use crate::jobs::{Folder, done, finish, launch, this};

const MAGIC: &[u8] = b"\0\x1batoll start\0\x1b\n";
const VERSION: &[u8] = &[1, 0, 0, 0];
const STARTED: &[u8] = &[1, 0, 0, 0, 8];

/// A frame: the bytes with their length in front.
fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

pub(crate) fn what_an_agent_should_not_say_is_told() {
    let folder = Folder::new("nonsense");
    let said = folder.0.join("said");
    let agent = format!("sh|-c|cat {}; exec cat > /dev/null", said.display());
    let contribution = |round: u8, length: usize| {
        let mut bytes = vec![7, round];
        // The length has seven bits in each byte.
        bytes.extend([length as u8 & 127 | 128, (length >> 7) as u8 & 127 | 128, (length >> 14) as u8]);
        bytes.extend(vec![0; length]);
        frame(&bytes)
    };
    let out_of_turn = "makes no sense (something out of turn)";
    let cases: &[(&[u8], &[u8], &str)] = &[
        (&[2, 0, 0, 0], &[], "its atoll speaks version 2 of the start protocol, this one 1"),
        (VERSION, &frame(&[12, 0, 0]), out_of_turn),
        (VERSION, &contribution(0, 3), out_of_turn),
        (VERSION, &[STARTED, STARTED].concat(), out_of_turn),
        (VERSION, &[STARTED, &contribution(1, 3)].concat(), "makes no sense (an exchange out of turn)"),
        (VERSION, &[STARTED, &contribution(0, 3), &contribution(0, 3)].concat(), "an exchange out of turn"),
        (VERSION, &[STARTED, &contribution(0, 65537)].concat(), out_of_turn),
        (VERSION, &[STARTED, &frame(&[5])].concat(), out_of_turn),
        (VERSION, &frame(&[99]), "makes no sense (a frame that cannot be read)"),
        (VERSION, &frame(&[8, 0]), "makes no sense (a frame that cannot be read)"),
        (VERSION, &frame(&[]), "makes no sense (a frame that cannot be read)"),
        (VERSION, &[255; 64], "makes no sense (a frame of 4294967295 bytes"),
    ];
    for (version, frames, says) in cases {
        std::fs::write(&said, [MAGIC, version, frames].concat()).unwrap();
        let job = done(launch(&["--agent", &agent, "--grace", "50"], ".,.", &["exchange", "1"]));
        assert_eq!(job.status, Some(1), "{says}: {job:?}");
        assert!(job.error.contains(says), "{says:?} is not in {job:?}");
    }
}

pub(crate) fn what_no_launcher_says_ends_an_agent() {
    let opening = [MAGIC, VERSION].concat();
    let cases: &[(&[u8], i32, &str)] = &[
        (b"", 2, "no launcher speaks to it"),
        (b"GET / HTTP/1.1\r\n\r\n", 2, "no launcher speaks to it"),
        (&[b'x'; 1000], 2, "no launcher of the same version"),
        (&[MAGIC, &[2, 0, 0, 0]].concat(), 2, "no launcher of the same version"),
        (&opening, 1, ""),
        (&[&opening, STARTED].concat(), 2, "makes no sense"),
        (&[&opening[..], &[255; 100]].concat(), 2, "makes no sense"),
        (&[&opening[..], &[9, 0, 0, 0, 0]].concat(), 2, "makes no sense"),
    ];
    for (said, status, says) in cases {
        let mut command = Command::new(this());
        command.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let agent = finish(command.spawn().unwrap(), said.to_vec());
        assert_eq!(agent.status, Some(*status), "{says}: {agent:?}");
        assert!(agent.error.contains(says) && (agent.output.as_bytes() == opening), "{says}: {agent:?}");
    }
}
