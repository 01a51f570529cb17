//! Transports between processes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod nodes;

use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::transport::{Event, Transport, Ucx, UcxSettings};

use crate::nodes::Spot;

fn ucx(spot: &Spot, tls: &str) -> Ucx {
    let settings = UcxSettings { transports: Some(tls.into()), ..UcxSettings::default() };
    Ucx::join(spot.node, spot.nodes, settings, |mine| spot.exchange(&mine)).unwrap()
}

fn main() {
    for tls in ["tcp", "shm", "all"] {
        nodes::processes(2, &[], |spot| {
            let mut t = ucx(&spot, tls);
            let other = Node(1 - spot.node.0);
            for i in 0..100u16 {
                t.send(other, i, &vec![i as u8; 10 << (i % 16)]).unwrap();
            }
            let mut next = 0u16;
            let end = Instant::now() + Duration::from_secs(10);
            while next < 100 {
                t.progress(&mut |e| match e {
                    Event::Message { from, kind, bytes } => {
                        assert_eq!((from, kind), (other, next));
                        assert_eq!(bytes, vec![next as u8; 10 << (next % 16)]);
                        next += 1;
                    }
                    e => panic!("{e:?}"),
                })
                .unwrap();
                t.wait(Some(Duration::from_millis(100))).unwrap();
                assert!(Instant::now() < end, "{next}");
            }
            drop(t);
        });
        println!("{tls} ok");
    }
}
