//! What random programs (`generated`) do beside their regions: threads of their own, signals, and an end in the middle of a
//! region.
//!
//! None of it changes what a program prints for as long as it runs, so that any two runs can be compared. An end cuts the
//! output off at a line that the program itself chose.

use std::fmt::Write;

use crate::random::Random;

/// The calls by which a program ends.
const ENDS: [&str; 6] =
    ["exit(3)", "_exit(4)", "abort()", "*(volatile int *)8 = 1", "__builtin_trap()", "raise(SIGKILL)"];

/// What one program does beside its regions.
#[derive(Debug, Clone, Default)]
pub struct Habits {
    /// The number of threads of its own, each with regions of its own.
    threads: u64,
    /// The microseconds between two signals of a timer.
    timer: Option<u64>,
    /// Whether a thread of the team raises a signal that has a handler.
    raises: bool,
    /// The round in which one thread ends the program, and the call.
    end: Option<(u64, &'static str)>,
    /// Whether the thread that ends the program belongs to a region within the region.
    inner: bool,
}

impl Habits {
    /// Returns the habits of the program of this seed, which has `rounds` rounds; every third program has none.
    pub fn of(seed: u64, rounds: u64) -> Habits {
        let mut random = Random(seed ^ 0xab17);
        if random.below(3) == 0 {
            return Habits::default();
        }
        let mut habits = Habits::default();
        if random.below(2) == 0 {
            habits.threads = 1 + random.below(3);
        }
        if random.below(2) == 0 {
            habits.timer = Some(*random.pick(&[700, 3000, 20_000]));
        }
        habits.raises = random.below(3) == 0;
        if random.below(2) == 0 {
            habits.end = Some((random.below(rounds), *random.pick(&ENDS)));
            habits.inner = random.below(3) == 0;
        }
        habits
    }

    /// Returns definitions before `main`; `mix` and `N` are defined already.
    pub fn definitions(&self) -> String {
        let mut text = String::new();
        if self.threads > 0 {
            // What such a thread computes lies on its own stack and on the heap, and depends on its number alone.
            text.push_str(
                "static word of_threads[4];\n\
                 static void *own_thread(void *given) {\n    word me = (word)given, sum = 0;\n    \
                 word on_stack[300], *block = malloc(5000 * sizeof *block);\n    for (int time = 0; time < 6; time++) {\n\
                 #pragma omp parallel for num_threads(1 + (time + me) % 3)\n        \
                 for (int i = 0; i < 300; i++) on_stack[i] = mix(i * 3 + me + time);\n\
                 #pragma omp parallel for reduction(+ : sum) schedule(dynamic, 100)\n        \
                 for (int i = 0; i < 5000; i++) { block[i] = mix(on_stack[i % 300] + i); sum += block[i]; }\n    }\n    \
                 free(block);\n    of_threads[me] = sum;\n    return NULL;\n}\n",
            );
        }
        if self.timer.is_some() || self.raises {
            text.push_str(
                "static volatile sig_atomic_t handled;\nstatic void handler(int number) { (void)number; handled = 1; }\n",
            );
        }
        text
    }

    /// Returns statements at the begin of `main`.
    pub fn begin(&self) -> String {
        let mut text = String::new();
        if self.timer.is_some() || self.raises {
            text.push_str(
                "    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};\n    \
                 sigaction(SIGALRM, &act, NULL);\n    sigaction(SIGUSR1, &act, NULL);\n",
            );
        }
        if let Some(micros) = self.timer {
            let _ = writeln!(
                text,
                "    struct itimerval every = {{{{0, {micros}}}, {{0, {micros}}}}};\n    setitimer(ITIMER_REAL, &every, NULL);"
            );
        }
        if self.threads > 0 {
            let _ = writeln!(
                text,
                "    pthread_t own[{0}];\n    for (word i = 0; i < {0}; i++) pthread_create(&own[i], NULL, own_thread, (void *)i);",
                self.threads
            );
        }
        text
    }

    /// Returns statements in each round, behind its regions and before its line is printed.
    pub fn round(&self) -> String {
        let mut text = String::new();
        if self.raises {
            text.push_str(
                "#pragma omp parallel\n        if (omp_get_thread_num() == round % omp_get_num_threads()) raise(SIGUSR1);\n",
            );
        }
        if let Some((round, how)) = self.end {
            let end = if self.inner {
                format!(
                    "{{\n#pragma omp parallel num_threads(2)\n            if (omp_get_thread_num() == 1 || omp_get_num_threads() == 1) {how};\n        }}"
                )
            } else {
                format!("{how};")
            };
            let _ = writeln!(
                text,
                "        if (round == {round}) {{\n            omp_set_max_active_levels(2);\n#pragma omp parallel\n        \
                 if (omp_get_thread_num() == omp_get_num_threads() - 1) {end}\n        }}"
            );
        }
        text
    }

    /// Returns statements behind all rounds.
    pub fn finish(&self) -> String {
        let mut text = String::new();
        if self.threads > 0 {
            let _ = writeln!(
                text,
                "    for (int i = 0; i < {0}; i++) {{ pthread_join(own[i], NULL); printf(\"thread %d: %016lx\\n\", i, of_threads[i]); }}",
                self.threads
            );
        }
        if self.raises {
            text.push_str("    printf(\"handled %d\\n\", (int)handled);\n");
        }
        text
    }
}
