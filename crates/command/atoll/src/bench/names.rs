//! `atoll bench names`: measures registering, looking up and waiting for names, at this node and at another, and starting a
//! program.
//!
//! Source: the barrelfish paper, section 6.8, which measured none of this. Its two questions are answered: whether local
//! look-ups are cheap because they stay in the node, and whether the second level costs one more round trip.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::host::NodeDirectory;
use atoll_channel::names::{Level, Limits, Name, NameClient, NameService, Pattern, Search};
use atoll_channel::spawn::{Order, Output as Stream, SpawnClient, SpawnService};

use super::output::{Output, held};
use super::pair::{Cpus, Other};
use super::statistics::percentile;
use super::table::{Cell, Table};
use super::{BenchError, pin};
use crate::cli::BenchArgs;
use crate::plot::Bars;

/// The number of calls of a measurement.
const CALLS: usize = 20_000;
/// The number of waits and program starts, which take longer.
const FEW: usize = 200;
/// The number of other names that are registered.
const OTHERS: u32 = 200;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// Makes an error for `map_err`, with what failed.
fn failed<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Channel(what, Box::new(error))
}

/// The microseconds of a measurement: median and 99th percentile.
struct Row {
    what: &'static str,
    median: f64,
    late: f64,
}

/// Measures and prints.
pub(super) fn bench(args: &BenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.output.as_deref())?;
    let cpus = Cpus::choose(args.cpus.as_deref())?;
    let directory = |_| NodeDirectory::create(&std::env::temp_dir()).map_err(failed("a node's directory"));
    let directories = [directory(0)?, directory(1)?];
    let paths = [directories[0].path().to_owned(), directories[1].path().to_owned()];
    println!(
        "services of two nodes on CPU {}, a client of node 1 on CPU {}, {} names besides\n",
        cpus.there,
        cpus.here,
        2 * OTHERS
    );
    let (ready, mut started) = std::io::pipe().map_err(failed("a pipe"))?;
    let services = {
        let paths = paths.clone();
        Other::start(cpus.there, move || serve(&paths, &mut started))?
    };
    wait_for_services(ready)?;
    pin::pin(cpus.here);
    let rows = measure(&paths)?;
    drop(services);

    let mut table = Table::new(["microseconds", "median", "99 %"]);
    for row in &rows {
        table.row(vec![row.what.into(), Cell::Number(row.median, 2), Cell::Number(row.late, 2)]);
    }
    output.table("names", &table)?;
    output.drawing("names", |path| {
        let bars = rows.iter().filter(|row| row.median < 1000.0);
        let bars = bars.map(|row| (row.what.to_owned(), row.median)).collect();
        Bars { title: "Names: median of a call".to_owned(), x: "microseconds", bars }.draw(path)
    })?;
    implications(&rows);
    output.end();
    Ok(())
}

/// Runs the other process: both nodes' services, until it is ended.
fn serve(paths: &[PathBuf; 2], started: &mut impl std::io::Write) -> Result<(), BenchError> {
    let name = |node: u32, path: &Path| {
        NameService::start(Node(node), path, 8, Limits::default()).map_err(failed("a name service"))
    };
    let spawn = |node: u32, path: &Path| {
        SpawnService::start(Node(node), path, 8).map_err(failed("a spawning service"))
    };
    let names = [name(0, &paths[0])?, name(1, &paths[1])?];
    let spawning = [spawn(0, &paths[0])?, spawn(1, &paths[1])?];
    let pair = || UnixStream::pair().map_err(failed("a pair of sockets"));
    let ((up, down), (to, from)) = (pair()?, pair()?);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| names[0].link_node(Node(1), &down).map_err(failed("linking the nodes")));
        let admitted = scope.spawn(|| spawning[0].admit(&from).map_err(failed("linking the nodes")));
        names[1].link_up(&up).map_err(failed("linking the nodes"))?;
        spawning[1].link_to(Node(0), &to).map_err(failed("linking the nodes"))?;
        let died = |_| BenchError::Other("linking the nodes".into());
        keeper.join().map_err(died)??;
        admitted.join().map_err(died)?
    })?;
    started.write_all(b"1").map_err(failed("a pipe"))?;
    loop {
        std::thread::sleep(Duration::from_secs(10));
    }
}

fn wait_for_services(mut ready: impl std::io::Read) -> Result<(), BenchError> {
    // Its end of the pipe closes if it fails.
    let mut byte = [0];
    ready.read_exact(&mut byte).map_err(|_| BenchError::Other("its services did not start".into()))
}

fn measure(paths: &[PathBuf; 2]) -> Result<Vec<Row>, BenchError> {
    let connect = |path: &Path| NameClient::connect(path).map_err(failed("connecting to the name service"));
    let (mut client, mut second) = (connect(&paths[1])?, connect(&paths[1])?);
    let mut keeper = connect(&paths[0])?;
    let name =
        |service: &str, node, instance| Name::new(service, Node(node), instance).map_err(failed("a name"));
    let own = name("mine", 1, 0)?;
    for level in [Level::Local, Level::Global] {
        for instance in 0..OTHERS {
            let other = name("other", 1, instance)?;
            second.register(level, &other, &[7; 64]).map_err(failed("registering"))?;
        }
    }
    let some = Pattern::service("other").map_err(failed("a pattern"))?;
    let one: Pattern = format!("other@1.{}", OTHERS / 2).parse().map_err(failed("a pattern"))?;
    let mut rows = Vec::new();
    for (what, level) in
        [("register and remove, this node", Level::Local), ("register and remove, global", Level::Global)]
    {
        rows.push(timed(what, CALLS, || {
            client.register(level, &own, &[7; 64]).map_err(failed("registering"))?;
            client.unregister(level, &own).map_err(failed("removing")).map(drop)
        })?);
    }
    let mut look = |what, client: &mut NameClient, search, pattern: &Pattern| {
        rows.push(timed(what, CALLS, || {
            let found = client.look_up(search, pattern).map_err(failed("looking up"))?;
            found.map(drop).ok_or_else(|| BenchError::Other("its names are gone".into()))
        })?);
        Ok::<_, BenchError>(())
    };
    look("look up one, this node", &mut client, Search::Local, &one)?;
    look("look up any, this node", &mut client, Search::Local, &some)?;
    look("look up one, global, from node 1", &mut client, Search::Global, &one)?;
    look("look up one, global, at node 0", &mut keeper, Search::Global, &one)?;
    for (what, level, search) in [
        ("registered to woken, this node", Level::Local, Search::Local),
        ("registered to woken, global", Level::Global, Search::Global),
    ] {
        rows.push(woken(what, level, search, &own, &mut client, &mut second)?);
    }

    let mut spawner =
        SpawnClient::connect(&paths[1]).map_err(failed("connecting to the spawning service"))?;
    let order = Order::program("true").output(Stream::nowhere()).error(Stream::nowhere());
    for (what, node) in
        [("start and end of a program, this node", 1), ("start and end of a program, other node", 0)]
    {
        rows.push(timed(what, FEW, || {
            let id = spawner.spawn(Node(node), &order).map_err(failed("starting a program"))?;
            spawner.wait(id, PATIENCE).map_err(failed("waiting for a program")).map(drop)
        })?);
    }
    rows.push(timed("start and end of a program, by itself", FEW, || {
        let mut command = Command::new("true");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().map_err(failed("starting a program")).map(drop)
    })?);
    Ok(rows)
}

/// Returns the time from a registration by `second` until `client`, which waits for the name, has it.
fn woken(
    what: &'static str,
    level: Level,
    search: Search,
    name: &Name,
    client: &mut NameClient,
    second: &mut NameClient,
) -> Result<Row, BenchError> {
    let pattern: Pattern = name.to_string().parse().map_err(failed("a pattern"))?;
    let mut times = Vec::new();
    for _ in 0..FEW {
        let began = std::thread::scope(|scope| {
            let registering = scope.spawn(|| {
                // The other process sleeps by then.
                std::thread::sleep(Duration::from_millis(2));
                let began = Instant::now();
                second.register(level, name, b"").map_err(failed("registering"))?;
                Ok::<_, BenchError>(began)
            });
            client.wait_for(search, &pattern, PATIENCE).map_err(failed("waiting for a name"))?;
            let now = Instant::now();
            let began = registering.join().map_err(|_| BenchError::Other("registering".into()))??;
            Ok::<_, BenchError>(now.saturating_duration_since(began))
        })?;
        times.push(began.as_secs_f64() * 1e6);
        second.unregister(level, name).map_err(failed("removing"))?;
    }
    Ok(row(what, times))
}

fn timed(
    what: &'static str,
    count: usize,
    mut call: impl FnMut() -> Result<(), BenchError>,
) -> Result<Row, BenchError> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        call()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(row(what, times))
}

fn row(what: &'static str, times: Vec<f64>) -> Row {
    Row { what, median: percentile(times.clone(), 50), late: percentile(times, 99) }
}

/// Prints section 6.8.2's reasons for two levels.
fn implications(rows: &[Row]) {
    let of = |what: &str| rows.iter().find(|row| row.what == what).map(|row| row.median);
    let (Some(local), Some(global), Some(kept)) = (
        of("look up one, this node"),
        of("look up one, global, from node 1"),
        of("look up one, global, at node 0"),
    ) else {
        return;
    };
    println!("what the paper concludes (section 6.8.2), here:");
    println!(
        "  two levels keep local look-ups fast: {local:.2} us, through the other node {global:.2} us: {}",
        held(local < global)
    );
    println!(
        "  global names cost one more hop, transparently: {kept:.2} us where they are kept, {global:.2} us from elsewhere: {}",
        held(kept < global)
    );
}
