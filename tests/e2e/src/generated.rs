//! Makes random OpenMP programs in C whose output does not depend on the team: it is the same with one thread as with any
//! number.
//!
//! `bin/soak` runs them on several nodes and compares their output with that of one thread. A program is a few regions,
//! repeated. A region is phases with a barrier behind each. In a phase an array is either written, each element by one thread,
//! or read, so that there is no race; but neighbouring bytes are written by different threads. `habits` has what a program does
//! beside that.

use std::fmt::Write;

use crate::habits::Habits;
use crate::random::Random;

/// The types of arrays. There is no floating point, as sums must not depend on their order.
const TYPES: [&str; 4] = ["unsigned char", "unsigned short", "unsigned int", "unsigned long"];
/// The schedules of loops; the empty one is the compiler's own.
const SCHEDULES: [&str; 9] = [
    "",
    "schedule(static)",
    "schedule(static, 1)",
    "schedule(static, 7)",
    "schedule(dynamic)",
    "schedule(dynamic, 5)",
    "schedule(guided)",
    "schedule(guided, 3)",
    "schedule(runtime)",
];

struct Array {
    name: String,
    kind: &'static str,
}

struct Program {
    random: Random,
    arrays: Vec<Array>,
    text: String,
    /// The arrays that this phase writes.
    written: Vec<usize>,
    /// The number of variables named so far.
    names: u32,
}

/// Returns the source of the program of this seed.
pub fn source(seed: u64) -> String {
    let mut random = Random(seed);
    let count = 3 + random.below(4) as usize;
    let arrays =
        (0..count).map(|i| Array { name: format!("a{i}"), kind: TYPES[random.below(4) as usize] }).collect();
    let mut program = Program { random, arrays, text: String::new(), written: Vec::new(), names: 0 };
    program.whole(seed);
    program.text
}

impl Program {
    fn put(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn whole(&mut self, seed: u64) {
        let elements = *self.random.pick(&[61, 500, 4096, 5000, 20011]);
        let rounds = 1 + self.random.below(5);
        let _ = writeln!(
            self.text,
            "/* Seed {seed}. */\n#include <omp.h>\n#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             #include <sys/time.h>\n#include <unistd.h>\nenum {{ N = {elements}, ROUNDS = {rounds}, BINS = 97 }};\n\
             typedef unsigned long word;\n\
             static word mix(word x) {{ x ^= x >> 31; x *= 0x9e3779b97f4a7c15ul; return x ^ x >> 29; }}\n\
             static word shared_sum, atomic_sum, locked_sum, single_word, sections[4];\n\
             static unsigned int bins[BINS];\n\
             static omp_lock_t lock;"
        );
        for i in 0..self.arrays.len() {
            let Array { name, kind } = &self.arrays[i];
            // It lies on the heap, among the globals, or on the main stack: see `main`.
            let line = match i % 3 {
                0 => format!("static {kind} *{name};"),
                1 => format!("static {kind} {name}[N];"),
                _ => format!("static {kind} *{name};"),
            };
            self.put(&line);
        }
        self.put(
            "static word sum(const void *from, size_t bytes) {\n    const unsigned char *p = from;\n    word h = 1469598103934665603ul;\n    \
             for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211ul;\n    return h;\n}\n\
             static word branch(int depth, word x) {\n    word left, right;\n    if (depth == 0) return mix(x);\n    \
             _Pragma(\"omp task shared(left) firstprivate(depth, x)\") left = branch(depth - 1, 2 * x);\n    \
             right = branch(depth - 1, 2 * x + 1);\n    _Pragma(\"omp taskwait\") return mix(left + 3 * right);\n}",
        );
        let habits = Habits::of(seed, rounds);
        self.put(&habits.definitions());
        let regions = 2 + self.random.below(4);
        for region in 0..regions {
            let _ = writeln!(self.text, "static void region{region}(int round) {{");
            self.region();
            self.put("}");
        }
        self.main(regions, &habits);
    }

    fn main(&mut self, regions: u64, habits: &Habits) {
        self.put("int main(void) {\n    omp_init_lock(&lock);");
        self.put(&habits.begin());
        for i in 0..self.arrays.len() {
            let Array { name, kind } = &self.arrays[i];
            let text = match i % 3 {
                0 => format!("    {name} = malloc(N * sizeof *{name});"),
                1 => String::new(),
                _ => format!("    {kind} on_stack{i}[N];\n    {name} = on_stack{i};"),
            };
            let text = format!("{text}\n    for (int i = 0; i < N; i++) {name}[i] = mix(i + {i} * 1000);");
            self.put(&text);
        }
        self.put("    for (int round = 0; round < ROUNDS; round++) {");
        for region in 0..regions {
            let _ = writeln!(self.text, "        region{region}(round);");
            if self.random.below(3) == 0 {
                self.between();
            }
        }
        self.put(&habits.round());
        self.put("        word all = 0;");
        for i in 0..self.arrays.len() {
            let name = &self.arrays[i].name;
            let line = format!("        all = mix(all + sum({name}, N * sizeof *{name}));");
            self.put(&line);
        }
        self.put(
            "        printf(\"%d: %016lx %016lx %016lx %016lx %016lx %016lx %016lx\\n\", round, all, sum(bins, sizeof bins), \
             shared_sum, atomic_sum, locked_sum, single_word,\n               sum(sections, sizeof sections));\n        fflush(stdout);\n    }",
        );
        self.put(&habits.finish());
        self.put("    return 0;\n}");
    }

    /// Adds what the master does between regions.
    fn between(&mut self) {
        let a = self.random.below(self.arrays.len() as u64) as usize;
        let b = self.random.below(self.arrays.len() as u64) as usize;
        let (a, b) = (self.arrays[a].name.clone(), self.arrays[b].name.clone());
        let at = self.random.below(61);
        let text = match self.random.below(5) {
            0 => format!("        {a}[{at}] = mix({b}[N - 1 - {at}] + round);"),
            1 => format!("        memset({a}, round + {at}, {at});"),
            2 => format!(
                "        {{ unsigned char *copy = malloc(N); for (int i = 0; i < N; i++) copy[i] = {b}[i]; \
                 for (int i = 0; i < N; i += 3) {a}[i] += copy[N - 1 - i]; free(copy); }}"
            ),
            3 => format!("        omp_set_num_threads(1 + (round + {at}) % 5);"),
            _ => format!("        for (int i = 0; i < N; i += {}) {a}[i] ^= i;", at + 1),
        };
        self.put(&text);
    }

    fn region(&mut self) {
        let clause = match self.random.below(6) {
            0 => format!(" num_threads({})", 1 + self.random.below(6)),
            1 => format!(" if (round != {})", self.random.below(3)),
            _ => String::new(),
        };
        if self.random.below(4) == 0 {
            // Here the region is the loop.
            self.written.clear();
            let schedule = *self.random.pick(&SCHEDULES);
            let _ = writeln!(self.text, "#pragma omp parallel for {schedule}{clause}");
            self.loop_body();
            return;
        }
        let _ = writeln!(self.text, "#pragma omp parallel{clause}\n    {{");
        let phases = 1 + self.random.below(4);
        for _ in 0..phases {
            self.written.clear();
            let statements = 1 + self.random.below(3);
            for _ in 0..statements {
                self.statement();
            }
            self.put("#pragma omp barrier");
        }
        self.put("    }");
    }

    /// Returns an array that nothing in this phase uses yet, to write.
    fn target(&mut self) -> Option<usize> {
        let free: Vec<usize> = (1..self.arrays.len()).filter(|i| !self.written.contains(i)).collect();
        if free.is_empty() {
            return None;
        }
        let one = *self.random.pick(&free);
        self.written.push(one);
        Some(one)
    }

    /// Returns a value that depends on `i` and on arrays that are only read in this phase, such as `a0`, which regions never
    /// write.
    fn value(&mut self, own: &str) -> String {
        let (k, c) = (self.random.below(50) * 2 + 1, self.random.below(1000));
        match self.random.below(5) {
            0 => format!("mix({own} + i * {k} + round)"),
            1 => format!("{own} * {k} + a0[((word)i * {k} + {c}) % N]"),
            2 => format!("mix((word)round * 77 + a0[N - 1 - i]) + {own}"),
            3 => format!("{own} ^ (a0[i] + {c})"),
            _ => format!("(i % {k} == 0 ? mix(i + {c} + round) : {own})"),
        }
    }

    fn loop_body(&mut self) {
        let Some(target) = self.target() else {
            return self.put("    for (int i = 0; i < N; i++) (void)mix(i);");
        };
        let name = self.arrays[target].name.clone();
        let stride = *self.random.pick(&[1, 1, 1, 2, 3]);
        let value = self.value(&format!("{name}[i]"));
        let line = if self.random.below(3) == 0 {
            // This loop runs from the last element to the first.
            format!("    for (int i = N - 1; i >= 0; i -= {stride}) {name}[i] = {value};")
        } else {
            format!("    for (int i = 0; i < N; i += {stride}) {name}[i] = {value};")
        };
        self.put(&line);
    }

    fn statement(&mut self) {
        let schedule = *self.random.pick(&SCHEDULES);
        let nowait = if self.random.below(2) == 0 { " nowait" } else { "" };
        let (c, k) = (self.random.below(1000), self.random.below(20) + 1);
        let v = self.name();
        match self.random.below(14) {
            0..=3 => {
                let _ = writeln!(self.text, "#pragma omp for {schedule}{nowait}");
                self.loop_body();
            }
            4 => {
                // Each thread has a part, cut anywhere, also of single bytes.
                let Some(target) = self.target() else { return };
                let name = self.arrays[target].name.clone();
                let value = self.value(&format!("{name}[i]"));
                let _ = writeln!(
                    self.text,
                    "    {{ word t = omp_get_thread_num(), all = omp_get_num_threads();\n      \
                     for (word i = N * t / all; i < N * (t + 1) / all; i++) {name}[i] = {value}; }}"
                );
            }
            5 => {
                // Only every n-th element is written.
                let Some(target) = self.target() else { return };
                let name = self.arrays[target].name.clone();
                let value = self.value(&format!("{name}[i]"));
                let _ = writeln!(
                    self.text,
                    "    for (word i = omp_get_thread_num(); i < N; i += omp_get_num_threads()) {name}[i] = {value};"
                );
            }
            6 => {
                let _ = writeln!(
                    self.text,
                    "    {{ word {v} = 0;\n#pragma omp for {schedule} nowait\n    \
                     for (int i = 0; i < N; i++) {v} += mix(a0[i] + i * {k});\n\
                     #pragma omp critical\n    shared_sum += {v}; }}"
                );
            }
            7 => {
                let _ = writeln!(
                    self.text,
                    "#pragma omp for {schedule}{nowait}\n    for (int i = 0; i < N; i += {k}) {{\n\
                     #pragma omp atomic\n        bins[(i + a0[i]) % BINS] += {};\n    }}",
                    c % 5 + 1
                );
            }
            8 => {
                let _ = writeln!(
                    self.text,
                    "#pragma omp for {schedule}{nowait}\n    for (int i = 0; i < N; i += {}) {{\n        \
                     omp_set_lock(&lock);\n        locked_sum += mix(i + round);\n        omp_unset_lock(&lock);\n    }}",
                    k * 40
                );
            }
            9 => {
                // The barrier behind it keeps two of these apart.
                let what = if c % 2 == 0 { "single" } else { "master" };
                let _ = writeln!(
                    self.text,
                    "#pragma omp barrier\n#pragma omp {what}\n    single_word = mix(single_word + round + {c});\n#pragma omp barrier"
                );
            }
            10 => {
                let _ = writeln!(self.text, "#pragma omp barrier\n#pragma omp sections{nowait}\n    {{");
                for section in 0..4 {
                    let _ = writeln!(
                        self.text,
                        "#pragma omp section\n        sections[{section}] = mix(sections[{section}] + a0[{c} % N]);"
                    );
                }
                self.put("    }\n#pragma omp barrier");
            }
            11 => {
                let Some(target) = self.target() else { return };
                let name = self.arrays[target].name.clone();
                let value = self.value(&format!("{name}[i]"));
                let _ = writeln!(
                    self.text,
                    "#pragma omp single{nowait}\n    for (int part = 0; part < {k}; part++) {{\n\
                     #pragma omp task firstprivate(part)\n        \
                     for (word i = (word)N * part / {k}; i < (word)N * (part + 1) / {k}; i++) {name}[i] = {value};\n    }}"
                );
            }
            12 => {
                let _ = writeln!(
                    self.text,
                    "    {{ word {v};\n#pragma omp single copyprivate({v})\n    {v} = mix(single_word + {c} + round);\n\
                     #pragma omp atomic\n    atomic_sum += {v} * (omp_get_thread_num() == 0); }}"
                );
            }
            _ => {
                let _ = writeln!(
                    self.text,
                    "#pragma omp barrier\n#pragma omp single\n    single_word += branch({}, {c});\n#pragma omp barrier",
                    1 + c % 5
                );
            }
        }
    }
}
