//! `atoll bench far`: measures what a page costs on its way to and from each far store, beside memcpy, a bare request over TCP, and UCX.
//!
//! `stores` measures a store. The lender of `hosts` is a process on the other CPU (`peer`), over the loopback interface and over
//! links of a limited bandwidth between two namespaces (`link`), where the targets are judged (`targets`). Lenders that are at work
//! in other hosts are measured besides, one by one. `programs` runs programs over a link. The stores are those of a run (`far/` of
//! `atoll-memory`).
//!
//! Source: the CMCP paper, section 5.1 (pages between near and far memory), for what is measured; it has no network.

pub(super) mod link;
mod peer;
mod programs;
mod stores;
mod targets;

use std::time::Duration;

use atoll_lend::{Card, Directory, Secret};
use atoll_memory::far::FarSpec;

use self::peer::Peer;
use self::stores::{Content, Row};
use super::output::Output;
use super::pair::Cpus;
use super::{BenchError, pin};
use crate::cli::FarBenchArgs;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of a batch.
const BATCH: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Channel(what, Box::new(error))
}

/// Measures a lender that is at work: microseconds of a page, and GB/s of batches.
pub(super) fn lender(name: &str) -> Result<(f64, f64), BenchError> {
    let none = || BenchError::NoLender(name.to_owned());
    let directory = Directory::open().map_err(failed("the lenders' folder"))?;
    let cards = directory.cards().map_err(failed("the lenders' folder"))?;
    let card = cards.into_iter().find(|card| card.name == name).ok_or_else(none)?;
    let key = directory.secret().map_err(failed("the lenders' secret"))?.key();
    let row = of_card(&card, &key, "atoll bench machine")?.ok_or_else(none)?;
    Ok((row.load, row.rate()))
}

/// Measures the lender of `card`, to which `command` is said to be who borrows; `None` where it does not answer.
fn of_card(card: &Card, key: &[u8; 32], command: &str) -> Result<Option<Row>, BenchError> {
    let Ok((mut control, address)) = card.open(key) else { return Ok(None) };
    let _ = control.introduce(command);
    let lenders = stores::borrowed(&card.label(), address, &control)?;
    let name = format!("hosts ({})", card.label());
    stores::measure(name, &FarSpec::Hosts, Some(lenders), None, Content::Half).map(Some)
}

/// Measures the lenders that are at work.
fn others() -> Result<Vec<Row>, BenchError> {
    let Ok(directory) = Directory::open() else { return Ok(Vec::new()) };
    let (Ok(key), Ok(cards)) = (directory.secret(), directory.cards()) else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for card in cards {
        rows.extend(of_card(&card, &key.key(), "atoll bench far")?);
    }
    Ok(rows)
}

/// Measures and prints.
pub(super) fn bench(args: &FarBenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.bench.output.as_deref())?;
    let cpus = Cpus::choose(args.bench.cpus.as_deref())?;
    let key = Secret::random().map_err(failed("getrandom"))?.key();
    if args.programs {
        programs::bench(&output, args)?;
        output.end();
        return Ok(());
    }
    let mut peer = Peer::local(cpus, key)?;
    pin::pin(cpus.here);
    println!(
        "pages of 4K in random order on CPU {}, the lender on CPU {} over loopback\n",
        cpus.here, cpus.there
    );
    let mut rows = vec![stores::copies()?];
    for spec in [FarSpec::Ram, FarSpec::Lz4, FarSpec::Zstd, FarSpec::File(None)] {
        rows.push(stores::measure(spec.to_string(), &spec, None, None, Content::Half)?);
    }
    rows.push(stores::bare(peer.bare)?);
    rows.push(stores::hosts("hosts (loopback)", &mut peer, &key, Content::Half)?);
    rows.extend(others()?);
    output.table("far", &stores::table(&rows))?;
    println!(
        "64: by page, in batches of {BATCH}; a lender looks for a next request for some 40 us, and whoever wants its CPU then gets it\n"
    );
    drop(peer);
    for gigabits in &args.links {
        if let Err(why) = targets::over_link(&output, cpus, *gigabits, key)? {
            println!("the targets are for links of a limited bandwidth, which are left out: {why}");
            break;
        }
    }
    output.end();
    Ok(())
}
