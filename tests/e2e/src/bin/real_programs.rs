//! Runs programs of Debian's and PyPI's as they are and under atoll at half of their memory, and compares what they print.
//!
//! `scripts/real-programs` installs them and calls this. The Python programs and the inputs of all are made from
//! `tests/real-programs`. Sizes are chosen so that each takes a second or more and tens of megabytes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use atoll_e2e::build::{atoll, installed};

const USAGE: &str = "usage: real_programs FOLDER [NAME...]
Runs the real programs (or those named) in FOLDER, where scripts/real-programs put their inputs: natively, and twice under
`atoll run --near N` with N half of the peak memory that they had. Prints a line for each, with both times. A program whose output
or exit status differs is a failure. Status 1 if any failed.";

/// A program, and the words that follow its name. Where `output` names a file the program writes it, and it is compared, too.
struct Program {
    name: &'static str,
    words: &'static str,
    output: Option<&'static str>,
}

const fn prints(name: &'static str, words: &'static str) -> Program {
    Program { name, words, output: None }
}

const fn writes(name: &'static str, words: &'static str, output: &'static str) -> Program {
    Program { name, words, output: Some(output) }
}

const PROGRAMS: [Program; 23] = [
    prints("numpy", "python3 np.py"),
    prints("scipy", "python3 sp.py"),
    prints("scikit-learn", "python3 sk.py"),
    prints("pandas", "python3 pd.py"),
    prints("numba", "python3 nb.py"),
    prints("lightgbm", "python3 lgb.py"),
    prints("xgboost", "python3 xgb.py"),
    prints("polars", "python3 pl.py"),
    prints("multiprocessing", "python3 mp.py"),
    writes("imagemagick", "convert picture.ppm -resize 140% -gaussian-blur 0x3 out.ppm", "out.ppm"),
    writes("graphicsmagick", "gm convert picture.ppm -blur 0x3 -rotate 7 gm.ppm", "gm.ppm"),
    writes(
        "ffmpeg",
        "ffmpeg -v error -y -loop 1 -i picture.ppm -frames:v 4 -vf scale=1920:-2 -c:v libx264 -threads 2 -f rawvideo out.264",
        "out.264",
    ),
    prints("minimap2", "minimap2 -t 2 -a reference.fa reads.fa"),
    prints("bwa", "bwa mem -t 2 indexed.fa reads.fa"),
    writes("samtools", "samtools sort -@ 2 -m 20M --no-PG -O sam -o sorted.sam reads.sam", "sorted.sam"),
    prints("clustalo", "clustalo --threads=2 --force -i family.fa"),
    prints("vsearch", "vsearch --quiet --threads 2 --cluster_fast reads.fa --id 0.5 --uc /dev/stdout"),
    prints("zstd", "zstd -q -T2 -15 --long -c text"),
    prints("xz", "xz -T2 -6 -c text"),
    prints("pigz", "pigz -p 2 -9 -n -c text"),
    prints("sort", "sort --parallel=2 -S 60M -n text"),
    prints(
        "octave",
        "octave-cli --no-history -q --eval a=mod(reshape(0:4e6-1,2000,2000),97);b=a*a';disp(sum(sort(b)(:)))",
    ),
    prints(
        "r",
        "Rscript --vanilla -e a<-matrix((0:3999999)%%97,2000);b<-a%*%t(a);cat(sum(b),sum(sort(b)[1:1000]),fill=TRUE)",
    ),
];

/// What came of one run.
struct Ran {
    seconds: f64,
    status: String,
    /// Kilobytes of the largest process.
    peak: i64,
    said: String,
}

/// The file in the folder that a run's standard output goes to.
const PRINTED: &str = ".printed";
/// What is added to the names of the files of the native run.
const NATIVE: &str = ".native";

/// The files that hold what a run printed and wrote.
fn results(folder: &Path, program: &Program) -> Vec<PathBuf> {
    [Some(PRINTED), program.output].into_iter().flatten().map(|name| folder.join(name)).collect()
}

fn of_native(result: &Path) -> PathBuf {
    let mut name = result.as_os_str().to_owned();
    name.push(NATIVE);
    name.into()
}

/// Whether two files hold the same. They are read in pieces: this process stays small, as Linux counts the memory of a process that
/// starts a program as that program's, too.
fn same(a: &Path, b: &Path) -> std::io::Result<bool> {
    let (mut a, mut b) = (BufReader::new(File::open(a)?), BufReader::new(File::open(b)?));
    loop {
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] || (length == 0 && left.len() != right.len()) {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
        a.consume(length);
        b.consume(length);
    }
}

fn run(folder: &Path, words: &[String]) -> std::io::Result<Ran> {
    let (out, err) = (folder.join(PRINTED), folder.join(".stderr"));
    let began = Instant::now();
    let child = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(folder)
        .env("OMP_NUM_THREADS", "2")
        .env("OPENBLAS_NUM_THREADS", "2")
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()?;
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the child is ours and nobody else waits for it; both places are valid for writes.
    let (reaped, usage) = unsafe {
        let reaped = libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr());
        (reaped, usage.assume_init())
    };
    if reaped < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Ran {
        seconds: began.elapsed().as_secs_f64(),
        status: std::process::ExitStatus::from_raw(status).to_string(),
        peak: usage.ru_maxrss,
        said: String::from_utf8_lossy(&std::fs::read(&err)?).into_owned(),
    })
}

/// Runs one program natively and twice under atoll.
///
/// # Errors
/// What is wrong.
fn compare(folder: &Path, program: &Program) -> Result<String, String> {
    let words: Vec<String> = program.words.split(' ').map(str::to_owned).collect();
    let said = |error: std::io::Error| format!("{}: {error}", words[0]);
    let results = results(folder, program);
    let is_native = || -> Result<bool, String> {
        for result in &results {
            if !same(result, &of_native(result)).map_err(said)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let native = run(folder, &words).map_err(said)?;
    if !native.status.ends_with(" 0") {
        return Err(format!("natively {}: {}", native.status, native.said));
    }
    for result in &results {
        std::fs::rename(result, of_native(result)).map_err(said)?;
    }
    let again = run(folder, &words).map_err(said)?;
    if !is_native()? {
        return Err("its native output differs from run to run".to_owned());
    }
    let near = format!("{}K", native.peak / 2);
    let mut under: Vec<String> =
        [&atoll().display().to_string(), "run", "--workers", "2", "--near", &near, "--"]
            .map(str::to_owned)
            .to_vec();
    under.extend(words.iter().cloned());
    let mut seconds: f64 = f64::MAX;
    let mut how = "";
    for _ in 0..2 {
        let ran = run(folder, &under).map_err(said)?;
        let right = is_native()?;
        if ran.status != native.status || !right {
            return Err(format!(
                "{}, output {}: {}\n{}",
                ran.status,
                if right { "right" } else { "WRONG" },
                under.join(" "),
                ran.said
            ));
        }
        seconds = seconds.min(ran.seconds);
        how = if ran.said.contains("nothing was managed") { "not managed" } else { "managed" };
    }
    Ok(format!(
        "{:<16}{:>6}M{:>9.2} s{:>9.2} s{:>6.2}  {how}",
        program.name,
        native.peak >> 10,
        native.seconds.min(again.seconds),
        seconds,
        seconds / native.seconds.min(again.seconds)
    ))
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(folder) = words.next().map(PathBuf::from).filter(|folder| folder.is_dir()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let names: Vec<String> = words.collect();
    println!("{:<16}{:>7}{:>11}{:>11}{:>6}", "program", "peak", "native", "at half", "");
    let (mut right, mut failed) = (0, 0);
    for program in
        PROGRAMS.iter().filter(|program| names.is_empty() || names.iter().any(|name| name == program.name))
    {
        let command = program.words.split(' ').next().unwrap_or_default();
        if !installed(command) {
            println!("{:<16}is not installed: {command}", program.name);
            continue;
        }
        match compare(&folder, program) {
            Ok(line) => {
                right += 1;
                println!("{line}");
            }
            Err(why) => {
                failed += 1;
                println!("{:<16}FAILED: {why}", program.name);
            }
        }
    }
    println!("{right} give their native output at half of their memory, {failed} failed");
    if failed == 0 && right > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
