//! Runs programs of Debian's and PyPI's as they are and under atoll at half of their memory, and compares what they print.
//!
//! `scripts/real-programs` installs them and calls this. The Python programs and the inputs of all are made from
//! `tests/real-programs`. Sizes are chosen so that each takes a second or more and tens of megabytes.

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

const PROGRAMS: [Program; 25] = [
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
    prints("vsearch", "vsearch --quiet --threads 2 --allpairs_global family.fa --acceptall --uc /dev/stdout"),
    prints("hmmer", "phmmer --cpu 2 --noali -o /dev/null --tblout /dev/null protein.fa proteins.fa"),
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
    prints("povray", "povray -D +I scene.pov +W500 +H400 +WT2 +O- -GA"),
];

/// What came of one run.
struct Ran {
    seconds: f64,
    status: String,
    /// Kilobytes of the largest process.
    peak: i64,
    /// All that was printed on standard output, and then the file that was written.
    output: Vec<u8>,
    said: String,
}

fn run(folder: &Path, words: &[String], output: Option<&str>) -> std::io::Result<Ran> {
    let (out, err) = (folder.join(".stdout"), folder.join(".stderr"));
    let began = Instant::now();
    let child = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(folder)
        .env("OMP_NUM_THREADS", "2")
        .env("OPENBLAS_NUM_THREADS", "2")
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&out)?)
        .stderr(std::fs::File::create(&err)?)
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
    let mut all = std::fs::read(&out)?;
    if let Some(output) = output {
        all.extend(std::fs::read(folder.join(output)).unwrap_or_default());
    }
    Ok(Ran {
        seconds: began.elapsed().as_secs_f64(),
        status: std::process::ExitStatus::from_raw(status).to_string(),
        peak: usage.ru_maxrss,
        output: all,
        said: String::from_utf8_lossy(&std::fs::read(&err)?).into_owned(),
    })
}

/// Runs one program natively and twice under atoll.
///
/// # Errors
/// What is wrong.
fn compare(folder: &Path, program: &Program) -> Result<String, String> {
    let words: Vec<String> = program.words.split(' ').map(str::to_owned).collect();
    let go = |words: &[String]| {
        run(folder, words, program.output).map_err(|error| format!("{}: {error}", words[0]))
    };
    let native = go(&words)?;
    if !native.status.ends_with(" 0") {
        return Err(format!("natively {}: {}", native.status, native.said));
    }
    let again = go(&words)?;
    if again.output != native.output {
        return Err("its native output differs from run to run".to_owned());
    }
    let near = format!("{}K", native.peak / 2);
    let mut under: Vec<String> =
        [&atoll().display().to_string(), "run", "--workers", "2", "--near", &near, "--"]
            .map(str::to_owned)
            .to_vec();
    under.extend(words);
    let mut seconds: f64 = f64::MAX;
    let mut how = "";
    for _ in 0..2 {
        let ran = go(&under)?;
        if ran.status != native.status || ran.output != native.output {
            return Err(format!(
                "{}, output {}: {}\n{}",
                ran.status,
                if ran.output == native.output { "right" } else { "WRONG" },
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
